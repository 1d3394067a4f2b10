"""What the filters keep: by hand, against the definition token by token, and the kernel against the reference."""

import pytest
import torch

from sglang.kernels.draft_tree.kept_probs import NEAR, filtered_near, kept_probs

from .parity import compare_kept_probs

PROBS = torch.tensor([[0.125, 0.25, 0.0, 0.25, 0.25, 0.125]])


def kept(top_k=6, top_p=1.0, min_p=0.0) -> list[float]:
    return kept_probs(PROBS, torch.tensor([top_k]), torch.tensor([top_p]), torch.tensor([min_p]))[0].tolist()


def test_without_a_filter_everything_is_kept():
    assert kept() == PROBS[0].tolist() == kept(top_k=1 << 30)


def test_of_equal_probabilities_the_lower_token_comes_first():
    assert kept(top_k=2) == [0, 0.25, 0, 0.25, 0, 0]
    assert kept(top_k=4) == [0.125, 0.25, 0, 0.25, 0.25, 0]


def test_a_token_stays_while_the_mass_before_it_is_at_most_top_p():
    assert kept(top_p=0.0) == [0, 0.25, 0, 0, 0, 0]
    assert kept(top_p=0.5) == [0, 0.25, 0, 0.25, 0.25, 0]
    assert kept(top_p=0.8) == [0.125, 0.25, 0, 0.25, 0.25, 0]


def test_the_strictest_filter_counts():
    assert kept(min_p=0.6) == [0, 0.25, 0, 0.25, 0.25, 0]
    assert kept(top_k=5, top_p=0.3, min_p=0.1) == [0, 0.25, 0, 0.25, 0, 0]


@pytest.mark.parametrize("filters", [(1, 1.0, 0.0), (40, 1.0, 0.0), (5000, 0.5, 0.0), (5000, 1.0, 0.1)])
def test_the_largest_probabilities_alone_give_the_same(filters):
    """Rounded, so that many are equal, also around the last one that is kept."""
    generator = torch.Generator().manual_seed(1)
    probs = torch.softmax(torch.randn(6, 3 * NEAR, generator=generator).mul_(3).round_(decimals=1), dim=-1)
    tensors = [torch.full((6,), value) for value in filters]
    ranked, token_ids = filtered_near(probs, *tensors)
    assert ranked.shape == (6, NEAR)
    found = torch.zeros_like(probs).scatter_(1, token_ids, ranked)
    # Sums over fewer numbers are rounded otherwise, which moves no cut here.
    assert torch.equal(found, kept_probs(probs, *tensors))


@pytest.mark.parametrize("filters", [(5000, 1.0, 0.0), (1025, 1.0, 0.0), (5000, 0.999, 0.0)])
def test_rows_that_keep_more_are_left_to_a_sort(filters):
    flat = torch.full((2, 2 * NEAR), 1 / (2 * NEAR))
    assert filtered_near(flat, *(torch.full((2,), value) for value in filters)) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("rows, vocab", [(1, 2), (33, 17), (200, 300), (64, 4097), (33, 151936)])
def test_kernel_agrees_with_the_reference(rows, vocab, ties, dtype):
    if not ties and dtype != torch.float32:
        pytest.skip("sums of rounded probabilities come near enough to a filter to fall on either side")
    compare_kept_probs("cuda", rows, vocab, dtype, ties=ties)
