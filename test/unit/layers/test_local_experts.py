"""R29: with expert parallelism the ranks' partial sums add up to what one rank with all experts computes."""

from types import SimpleNamespace

import pytest
import torch

from harness.device import DEVICE
from sglang.srt.layers.moe.fused_moe_native import moe_forward_native
from sglang.srt.layers.moe.topk import StandardTopKOutput

TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 6, 8, 4, 8, 2
CONFIG = SimpleNamespace(
    apply_router_weight_on_input=False, activation="silu", gemm1_alpha=None, gemm1_clamp_limit=None
)


def layer(gate_up: torch.Tensor, down: torch.Tensor, ranks: int, rank: int) -> SimpleNamespace:
    """The experts of one rank, as upstream's layer holds them."""
    count = EXPERTS // ranks
    local = slice(rank * count, (rank + 1) * count)
    return SimpleNamespace(
        num_experts=EXPERTS, num_local_experts=count, moe_ep_size=ranks, moe_ep_rank=rank,
        w13_weight=gate_up[local], w2_weight=down[local],
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_r29_partial_sums_of_all_ranks_equal_one_rank(ranks: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, HIDDEN, generator=generator)
    gate_up = torch.randn(EXPERTS, 2 * INNER, HIDDEN, generator=generator)
    down = torch.randn(EXPERTS, HIDDEN, INNER, generator=generator)
    scores = torch.rand(TOKENS, EXPERTS, generator=generator)
    weights, ids = scores.topk(CHOSEN)
    expected = torch.zeros_like(x)
    for token in range(TOKENS):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            gate, up = (gate_up[expert] @ x[token]).chunk(2)
            expected[token] += weight * (down[expert] @ (torch.nn.functional.silu(gate) * up))
    x, gate_up, down, weights, ids, scores = (each.to(DEVICE) for each in (x, gate_up, down, weights, ids, scores))
    found = torch.zeros_like(x)
    for rank in range(ranks):
        first = rank * EXPERTS // ranks
        local = torch.where((ids >= first) & (ids < first + EXPERTS // ranks), ids - first, -1)
        choice = StandardTopKOutput(weights, local, scores)
        found += moe_forward_native(layer(gate_up, down, ranks, rank), x, choice, CONFIG)
    torch.testing.assert_close(found.cpu(), expected)
