"""Top candidates: by hand, and the kernel against the reference."""

import pytest
import torch

from sglang.kernels.draft_tree.candidates import top_candidates

from .parity import compare_candidates


def test_of_equal_logits_the_smaller_id_comes_first():
    logits = torch.tensor([[1.0, 3.0, -0.0, 3.0, 0.0, -2.0]])
    ids, log_probs = top_candidates(logits, 5)
    assert ids.tolist() == [[1, 3, 0, 2, 4]]
    torch.testing.assert_close(log_probs, logits.log_softmax(dim=1).gather(1, ids))


def test_log_probabilities_are_taken_in_float32():
    logits = torch.full((1, 1 << 16), 1.0, dtype=torch.bfloat16)
    _, log_probs = top_candidates(logits, 1)
    torch.testing.assert_close(log_probs, torch.full((1, 1), -16 * torch.tensor(2.0).log().item()))


@pytest.mark.parametrize("topk", [0, 17])
def test_a_topk_out_of_bounds_is_refused(topk):
    with pytest.raises(ValueError, match=f"topk is {topk}"):
        top_candidates(torch.zeros(1, 100), topk)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 7, 480])
@pytest.mark.parametrize("vocab, topk", [(16, 16), (4096, 8), (4097, 1), (49152, 8), (151936, 16)])
def test_kernel_agrees_with_the_reference(rows, vocab, topk):
    compare_candidates("cuda", min(rows, 64) if vocab > 100_000 else rows, vocab, topk, torch.bfloat16, ties=True)
    compare_candidates("cuda", min(rows, 64), vocab, topk, torch.float32, ties=False)
