"""Experts split over ranks: the ranks' outputs add up to those of one rank with all experts."""

from types import SimpleNamespace

import torch

from sglang.srt.layers.moe import fused_moe_native
from sglang.srt.layers.moe.topk import StandardTopKOutput

EXPERTS, HIDDEN, INNER, TOKENS, TOPK = 4, 8, 6, 5, 2
RUNNER = SimpleNamespace(
    apply_router_weight_on_input=False, activation="silu", gemm1_alpha=None, gemm1_clamp_limit=None
)


def test_the_outputs_of_two_ranks_add_up_to_those_of_one():
    generator = torch.Generator().manual_seed(0)
    w13 = torch.randn(EXPERTS, 2 * INNER, HIDDEN, generator=generator)
    w2 = torch.randn(EXPERTS, HIDDEN, INNER, generator=generator)
    x = torch.randn(TOKENS, HIDDEN, generator=generator)
    scores = torch.randn(TOKENS, EXPERTS, generator=generator).softmax(dim=-1)
    weights, ids = scores.topk(TOPK)

    def outputs(first: int, last: int) -> torch.Tensor:
        layer = SimpleNamespace(num_experts=EXPERTS, w13_weight=w13[first:last], w2_weight=w2[first:last])
        here = (ids >= first) & (ids < last)
        local = StandardTopKOutput(weights, torch.where(here, ids - first, -1), scores)
        return fused_moe_native.moe_forward_native(layer, x, local, RUNNER)

    assert torch.allclose(outputs(0, 2) + outputs(2, 4), outputs(0, 4), atol=1e-5)
    assert torch.allclose(sum(outputs(expert, expert + 1) for expert in range(EXPERTS)), outputs(0, 4), atol=1e-5)
