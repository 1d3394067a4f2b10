"""Sampling with a seed on a CPU: the hash, bit by bit, and min-p together with a seed."""

import struct

import pytest
import torch
from scipy.stats import chisquare

from sglang.kernels.ops.sampling.murmur_hash import murmur_hash32
from sglang.srt.layers.sampler import multinomial_with_seed, top_k_top_p_min_p_sampling_from_probs_torch
from sglang.srt.layers.seeded_sampling import has_sgl_kernel, murmur_hash32_torch


def murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0 of a whole number of words, on Python's integers."""
    low = 0xFFFFFFFF
    state = 0
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & low
        word = (word << 15 | word >> 17) & low
        state ^= word * 0x1B873593 & low
        state = (state << 13 | state >> 19) & low
        state = state * 5 + 0xE6546B64 & low
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & low
    return state


def test_the_reference_itself_hashes_known_text():
    assert murmur3(b"") == 0
    assert murmur3(b"test") == 0xBA6BD213


def test_the_hash_agrees_with_the_definition_bit_by_bit():
    seeds = [0, 1, 42, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1]
    positions = [0, 1, 7, 4095, 2**31, 2**32 - 1, 100]
    columns = [0, 1, 2, 31999, 151643]
    words = torch.tensor([seed - 2**64 if seed >= 2**63 else seed for seed in seeds]).view(torch.uint64)
    hashes = murmur_hash32_torch(words, torch.tensor(positions), torch.tensor(columns))
    assert hashes.dtype == torch.uint32
    expected = [
        [murmur3(struct.pack("<QII", seed, position, column)) for column in columns]
        for seed, position in zip(seeds, positions, strict=True)
    ]
    assert hashes.to(torch.int64).tolist() == expected


@pytest.mark.gpu
def test_the_hash_agrees_with_upstreams_kernel():
    seeds, positions, columns = torch.arange(64).view(torch.uint64), torch.arange(64) * 77, torch.arange(5000)
    kernel = murmur_hash32(seeds.cuda(), positions.cuda(), columns.cuda())
    assert torch.equal(kernel.cpu(), murmur_hash32_torch(seeds, positions, columns))


@pytest.mark.skipif(has_sgl_kernel(), reason="upstream's own kernel hashes here")
def test_a_seeded_draw_needs_no_compiled_package_and_no_compiler():
    logprobs = torch.log_softmax(torch.randn(4, 50, generator=torch.Generator().manual_seed(0)), dim=-1)
    seeds, positions = torch.tensor([1, 1, 2, 1]), torch.tensor([3, 4, 3, 3])
    drawn = multinomial_with_seed(logprobs[:1].expand(4, 50), seeds, positions).flatten().tolist()
    assert drawn[0] == drawn[3] and len({*drawn[:3]}) > 1
    assert multinomial_with_seed(logprobs[:1], seeds[:1], positions[:1]).item() == drawn[0]


def test_min_p_with_a_seed_draws_from_what_min_p_keeps():
    """Upstream asserts that there is none, which ends the server."""
    probs = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    rows = 20_000
    drawn = top_k_top_p_min_p_sampling_from_probs_torch(
        probs.expand(rows, 5).clone(),
        torch.full((rows,), 4),
        torch.ones(rows),
        torch.full((rows,), 0.3),
        True,
        torch.full((rows,), 7),
        torch.arange(rows),
    )
    counts = torch.bincount(drawn.long(), minlength=5)
    assert counts[3:].sum() == 0
    kept = probs[:3] / probs[:3].sum()
    assert chisquare(counts[:3].numpy(), kept.numpy() * rows).pvalue > 1e-6
