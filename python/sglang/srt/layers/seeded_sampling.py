"""Draws where upstream's fall short: with a seed on a CPU, with min-p and beside other requests; on GPUs, unsorted."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
from collections.abc import Callable

import torch
from torch.nn.functional import pad

from sglang.kernels.draft_tree.dispatch import uses_triton
from sglang.kernels.draft_tree.kept_probs import (
    filtered_by_rank,
    filtered_near,
    in_place_of_ranks,
    kept_probs,
)

logger = logging.getLogger(__name__)

_LOW_32_BITS = 0xFFFFFFFF
_BYTES_HASHED = 16
_PART = 128  # tokens


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


def draws_by_token(sample: Callable) -> Callable:
    """Wrap `top_k_top_p_min_p_sampling_from_probs_torch`: filters zero probabilities, and a draw is one without them.

    Upstream sorts the vocabulary for all requests where one of them has a filter, or is greedy, and draws a rank. With
    a seed, noise then goes by rank where any request of the batch has a filter, and by token where none has, so what
    a seed draws depends on the other requests; and min-p fails an assertion, which ends the server. Here the noise
    stays with the token: it takes the largest of log-probability plus noise, for which what is left need not sum to
    one. Without a seed a CPU draws among the few tokens that are kept, if they are few; if not, as upstream does.
    """

    @functools.wraps(sample)
    def draw(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions, **options):
        from sglang.srt.layers.sampler import sampling_from_probs_torch

        if sampling_seed is None and not uses_triton(probs.device):
            may_look = probs.device.type == "cpu" and not options.get("return_filtered_probs")
            tokens = _draw_near(probs, top_ks, top_ps, min_ps) if may_look else None
            if tokens is not None:
                return tokens
            return sample(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions, **options)
        if not options.get("return_filtered_probs"):
            kept = kept_probs(probs, top_ks, top_ps, min_ps)
            return sampling_from_probs_torch(kept, sampling_seed, positions)
        ranked, token_ids = filtered_by_rank(probs, top_ks, top_ps, min_ps)
        kept = in_place_of_ranks(ranked, token_ids)
        tokens = sampling_from_probs_torch(kept, sampling_seed, positions)
        return tokens, ranked, token_ids.to(torch.int32), kept.gather(1, tokens.view(-1, 1).long()).view(-1)

    return draw


def _draw_near(
    probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> torch.Tensor | None:
    """[rows] int32: draws of rows that keep few tokens or all; None where some row keeps many of them, but not all."""
    from sglang.srt.layers.sampler import sampling_from_probs_torch

    all_kept = (top_ks >= probs.shape[1]) & (top_ps >= 1) & (min_ps <= 0)
    near = filtered_near(probs, top_ks.masked_fill(all_kept, 1), top_ps, min_ps)
    if near is None:
        return None
    ranked, token_ids = near
    tokens = token_ids.gather(1, torch.multinomial(ranked, num_samples=1)).view(-1).to(torch.int32)
    return torch.where(all_kept, sampling_from_probs_torch(probs), tokens) if all_kept.any() else tokens


def in_two_steps_on_cpu(sample: Callable) -> Callable:
    """Wrap `sampling_from_probs_torch`: without a seed a CPU draws a part of the vocabulary, and a token of that part.

    The distribution is the same. Drawing among all tokens takes a random number for each of them, at every node.
    """

    @functools.wraps(sample)
    def draw(probs, sampling_seed=None, positions=None):
        if sampling_seed is not None or probs.device.type != "cpu":
            return sample(probs, sampling_seed, positions)
        parts = pad(probs, (0, -probs.shape[1] % _PART)).view(len(probs), -1, _PART)
        part = torch.multinomial(parts.sum(dim=-1), num_samples=1)
        within = parts.gather(1, part[:, :, None].expand(-1, -1, _PART)).squeeze(1)
        return (part * _PART + torch.multinomial(within, num_samples=1)).view(-1).to(torch.int32)

    return draw
