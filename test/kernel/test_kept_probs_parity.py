"""What the filters keep: by hand, against the definition token by token, and the kernel against the reference."""

import pytest
import torch

from sglang.kernels.draft_tree.kept_probs import kept_probs

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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("rows, vocab", [(1, 2), (33, 17), (200, 300), (64, 4097), (33, 151936)])
def test_kernel_agrees_with_the_reference(rows, vocab, ties, dtype):
    if not ties and dtype != torch.float32:
        pytest.skip("sums of rounded probabilities come near enough to a filter to fall on either side")
    compare_kept_probs("cuda", rows, vocab, dtype, ties=ties)
