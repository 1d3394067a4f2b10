"""Sampling with a seed where upstream lacks it: on a CPU, with min-p, and beside requests that have other filters."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
from collections.abc import Callable

import torch

from sglang.srt.layers.sampling_filters import kept_by_filters

logger = logging.getLogger(__name__)

_LOW_32_BITS = 0xFFFFFFFF
_BYTES_HASHED = 16


def murmur_hash32_torch(seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 (32 bit, seed 0) of seed, position and column: the bits of upstream's kernels, in torch.

    Source of the constants: MurmurHash3_x86_32, A. Appleby, public domain. Products of two 32-bit numbers wrap around
    in int64, which leaves their low 32 bits right.

    Args:
        seed: [rows] uint64, hashed as two 32-bit words, the low one first.
        positions: [rows] integer; the low 32 bits count.
        col_indices: [columns] integer.

    Returns:
        [rows, columns] uint32.
    """
    words = seed.view(torch.int64)
    state = torch.zeros_like(words)
    for word in (words, words >> 32, positions.to(torch.int64)):
        state = _mix(state, word & _LOW_32_BITS)
    state = _mix(state[:, None], col_indices.to(torch.int64)[None, :] & _LOW_32_BITS) ^ _BYTES_HASHED
    state = (state ^ (state >> 16)) * 0x85EBCA6B & _LOW_32_BITS
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & _LOW_32_BITS
    return (state ^ (state >> 16)).to(torch.uint32)


def _mix(state: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    word = _rotate_left(word * 0xCC9E2D51 & _LOW_32_BITS, 15) * 0x1B873593 & _LOW_32_BITS
    return _rotate_left(state ^ word, 13) * 5 + 0xE6546B64 & _LOW_32_BITS


def _rotate_left(word: torch.Tensor, bits: int) -> torch.Tensor:
    return (word << bits | word >> (32 - bits)) & _LOW_32_BITS


def hashes_without_sgl_kernel(murmur_hash32: Callable) -> Callable:
    """Wrap `murmur_hash32`, which on a CPU needs the compiled package: hash in torch where that is not installed."""

    @functools.wraps(murmur_hash32)
    def hash_columns(seed, positions, col_indices):
        if seed.device.type == "cpu" and not has_cpu_hash():
            return murmur_hash32_torch(seed, positions, col_indices)
        return murmur_hash32(seed, positions, col_indices)

    return hash_columns


@functools.cache
def has_cpu_hash() -> bool:
    """Whether upstream's compiled kernels hash on a CPU: their package may be absent, or hold those of a GPU alone."""
    with contextlib.suppress(ImportError):
        importlib.import_module("sgl_kernel")
    return hasattr(torch.ops.sgl_kernel, "murmur_hash32_cpu")


def eager_on_cpu(multinomial_with_seed: Callable) -> Callable:
    """Wrap `multinomial_with_seed`, which is compiled: on a CPU that takes a C++ compiler, for no gain worth it."""

    @functools.wraps(multinomial_with_seed)
    def draw(logprobs, seed, positions):
        if logprobs.device.type != "cpu":
            return multinomial_with_seed(logprobs, seed, positions)
        with torch.compiler.set_stance("force_eager"):
            return multinomial_with_seed(logprobs, seed, positions)

    return draw


def on_accelerators(enable_batch_invariant_mode: Callable) -> Callable:
    """Wrap `enable_batch_invariant_mode`, which has no kernels for a CPU: seeds work there without them."""

    @functools.wraps(enable_batch_invariant_mode)
    def enable(*args, **kwargs):
        from sglang.srt.platforms import current_platform

        if current_platform.device_type != "cpu":
            return enable_batch_invariant_mode(*args, **kwargs)
        logger.warning(
            "--enable-deterministic-inference on a CPU: seeds are honoured, but the last bit of a logit may change "
            "with the requests that share a batch."
        )

    return enable


def seeded_draws_by_token(sample: Callable) -> Callable:
    """Wrap `top_k_top_p_min_p_sampling_from_probs_torch`: with a seed, the draw behind the filters is the one without.

    Upstream ties the noise of a draw to a token's rank where any request of the batch has a filter, and to the token
    itself where none has, so what a seed draws depends on the other requests. Min-p with a seed fails an assertion
    there, which ends the server. Here the filters only zero probabilities, and the noise stays with the token: it takes
    the largest of log-probability plus noise, for which what is left need not sum to one.
    """

    @functools.wraps(sample)
    def draw(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions, **options):
        if sampling_seed is None:
            return sample(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions, **options)
        from sglang.srt.layers.sampler import sampling_from_probs_torch

        ranked, ranked_ids = filtered_by_rank(probs, top_ks, top_ps, min_ps)
        kept = torch.zeros_like(probs).scatter_(1, ranked_ids, ranked)
        tokens = sampling_from_probs_torch(kept, sampling_seed, positions)
        if not options.get("return_filtered_probs"):
            return tokens
        return tokens, ranked, ranked_ids.to(torch.int32), kept.gather(1, tokens.view(-1, 1).long()).view(-1)

    return draw


def filtered_by_rank(
    probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities from the largest down, zero where a filter drops them, and the tokens that they belong to.

    Args:
        probs: [rows, vocab] float.
        top_ks: [rows] int; at least the size of the vocabulary keeps all.
        top_ps: [rows] float; 1 keeps all, whatever the sum in float32 comes to.
        min_ps: [rows] float; 0 keeps all.

    Returns:
        Two [rows, vocab] tensors, of the dtype of `probs` and int64. Of equal ones the lower token comes first.
    """
    ranked, ranked_ids = probs.sort(dim=-1, descending=True, stable=True)
    # In float32 the mass before a token may come to more than 1.
    top_ps = top_ps.masked_fill(top_ps >= 1, torch.inf)
    kept = kept_by_filters(ranked, top_ks.view(-1, 1), top_ps.view(-1, 1), min_ps.view(-1, 1))
    return ranked.masked_fill(~kept, 0.0), ranked_ids
