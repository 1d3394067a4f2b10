"""The chunked loss against autograd on whole logits."""

import pytest
import torch

from benchmark.draft_training import loss
from benchmark.draft_training.loss import depth_weights, distillation_loss


@pytest.mark.parametrize("soft", [0.0, 0.4, 1.0])
def test_loss_and_gradient_equal_autograd_on_whole_logits(monkeypatch, soft):
    monkeypatch.setattr(loss, "ROWS_PER_CHUNK", 4)  # three chunks, the last one padded
    generator = torch.Generator().manual_seed(0)
    draft, target = torch.randn(2, 10, 6, generator=generator, dtype=torch.float64)
    head = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    tokens = torch.randint(12, (10,), generator=generator)
    weights = torch.rand(10, generator=generator, dtype=torch.float64)
    weights[3] = 0

    whole = draft.clone().requires_grad_()
    label = soft * torch.softmax(target @ head.T, -1) + (1 - soft) * torch.nn.functional.one_hot(tokens, 12)
    expected = (-(label * torch.log_softmax(whole @ head.T, -1)).sum(-1) * weights).sum() / weights.sum()
    expected.backward()

    draft.requires_grad_()
    found, correct = distillation_loss(draft, target, tokens, weights, head, soft)
    (3 * found).backward()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)  # logits become float32 inside
    torch.testing.assert_close(draft.grad, 3 * whole.grad, rtol=1e-4, atol=1e-7)
    assert torch.equal(correct, (draft @ head.T).argmax(-1) == tokens)


def test_depth_weights_fall_to_one_over_e():
    weights = depth_weights(7, decay=3.0)
    assert weights[0] == 1
    assert weights[3].item() == pytest.approx(1 / 2.718281828)
