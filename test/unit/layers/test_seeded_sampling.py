"""Sampling with a seed on a CPU: the hash bit by bit, and draws behind filters, alike in every batch."""

import struct

import pytest
import torch
from scipy.stats import chisquare

from sglang.kernels.draft_tree import kept_probs as kept_probs_module
from sglang.kernels.draft_tree.kept_probs import kept_probs
from sglang.kernels.ops.sampling.murmur_hash import murmur_hash32
from sglang.srt.layers import seeded_sampling
from sglang.srt.layers.sampler import (
    multinomial_with_seed,
    sampling_from_probs_torch,
    top_k_top_p_min_p_sampling_from_probs_torch,
)
from sglang.srt.layers.seeded_sampling import has_cpu_hash, murmur_hash32_torch
from sglang.srt.sampling.sampling_params import TOP_K_ALL


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


@pytest.mark.skipif(has_cpu_hash(), reason="upstream's own kernel hashes here")
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


ROWS, VOCAB = 512, 128


def filtered_draws(probs: torch.Tensor, top_k: list, top_p: list, min_p: list, **rest):
    """Rows take turns with the filters given."""
    filters = (torch.tensor(values).repeat(len(probs) // len(values)) for values in (top_k, top_p, min_p))
    seeds, positions = torch.full((len(probs),), 7), torch.arange(len(probs))
    return top_k_top_p_min_p_sampling_from_probs_torch(probs.clone(), *filters, any(min_p), seeds, positions, **rest)


@pytest.fixture
def probs() -> torch.Tensor:
    return torch.softmax(torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(3)) * 2, dim=-1)


@pytest.mark.parametrize("neighbour", [(1, 1.0, 0.0), (5, 1.0, 0.0), (TOP_K_ALL, 0.5, 0.0), (TOP_K_ALL, 1.0, 0.4)])
def test_a_request_without_filters_draws_the_same_beside_one_that_has_some_r08(probs, neighbour):
    """Upstream drew by rank there, so a seed gave other tokens once a greedy request had joined the batch."""
    alone = sampling_from_probs_torch(probs, torch.full((ROWS,), 7), torch.arange(ROWS))
    top_k, top_p, min_p = neighbour
    beside = filtered_draws(probs, [TOP_K_ALL, top_k], [1.0, top_p], [0.0, min_p])
    assert torch.equal(beside[::2], alone[::2])
    assert not torch.equal(beside[1::2], alone[1::2])


def test_a_request_with_filters_draws_the_same_beside_any_other(probs):
    one = filtered_draws(probs, [20], [0.8], [0.0])
    beside = filtered_draws(probs, [20, 1], [0.8, 0.3], [0.0, 0.5])
    assert torch.equal(beside[::2], one[::2])
    assert torch.equal(beside[1::2], probs.argmax(dim=-1).int()[1::2])


def test_the_filters_keep_what_plain_sampling_keeps(probs):
    """Without a seed upstream's own code filters; both report what they kept."""
    filters = [20, TOP_K_ALL], [0.8, 0.6], [0.0, 0.0]
    tensors = (torch.tensor(values).repeat(ROWS // 2) for values in filters)
    _, expected, _, _ = top_k_top_p_min_p_sampling_from_probs_torch(
        probs.clone(), *tensors, False, None, None, return_filtered_probs=True
    )
    tokens, kept, token_ids, weights = filtered_draws(probs, *filters, return_filtered_probs=True)
    assert torch.equal(kept, expected)
    assert torch.equal(weights, probs.gather(1, tokens.view(-1, 1).long()).view(-1))
    assert torch.equal(torch.where(kept > 0, probs.gather(1, token_ids.long()), 0), kept)


def only_few(sort, most: int):
    """Of a row that is longer, nothing sorts."""

    def checked(values, *args, **kwargs):
        assert values.shape[-1] <= most
        return sort(values, *args, **kwargs)

    return checked


@pytest.mark.parametrize("few", [False, True], ids=["of kept probabilities", "of the largest"])
@pytest.mark.parametrize(
    "top_k, top_p, min_p", [(9, 1.0, 0.0), (TOP_K_ALL, 0.7, 0.0), (12, 0.9, 0.05), (TOP_K_ALL, 1.0, 0.0)]
)
def test_draws_without_a_seed_are_those_of_the_filters(monkeypatch, few, top_k, top_p, min_p):
    """How a GPU draws, with the reference of its kernel, and how a CPU does; every other request is greedy."""
    monkeypatch.setattr(seeded_sampling, "uses_triton", lambda device: not few)
    monkeypatch.setattr(kept_probs_module, "NEAR", 14)
    monkeypatch.setattr(torch.Tensor, "sort", only_few(torch.Tensor.sort, 14) if few else torch.Tensor.sort)
    rows = 40_000
    one = torch.softmax(torch.randn(16, generator=torch.Generator().manual_seed(4)) * 1.5, dim=-1)
    filters = ([top_k, 1], [top_p, 1.0], [min_p, 0.0])
    tensors = [torch.tensor(values).repeat(rows // 2) for values in filters]
    torch.manual_seed(5)
    tokens = top_k_top_p_min_p_sampling_from_probs_torch(one.repeat(rows, 1), *tensors, min_p > 0, None, None)
    assert (tokens[1::2] == one.argmax()).all()
    counts = torch.bincount(tokens[::2].long(), minlength=16)
    monkeypatch.undo()
    expected = kept_probs(one[None], *(values[:1] for values in tensors), backend="torch")[0].double()
    assert counts[expected == 0].sum() == 0 and (expected > 0).sum() >= 2
    share = expected[expected > 0] / expected.sum()
    assert chisquare(counts[expected > 0].numpy(), share.numpy() * counts.sum().item()).pvalue > 1e-6


@pytest.mark.parametrize("vocab", [7, 128, 300])
def test_a_draw_in_two_steps_has_the_distribution(vocab):
    rows = 60_000
    one = torch.softmax(torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)), dim=-1)
    one[3] = 0.0
    torch.manual_seed(6)
    counts = torch.bincount(sampling_from_probs_torch(one.expand(rows, vocab)).long(), minlength=vocab)
    assert counts[3] == 0 and counts.sum() == rows
    share = (one.double() / one.double().sum())[one > 0]
    assert chisquare(counts[one > 0].numpy(), share.numpy() * rows).pvalue > 1e-6
