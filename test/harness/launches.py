"""A launch as the plan sees it: Kimi K2.6 on eight GPUs with a DFLASH draft, experts over four groups of two GPUs."""

import dataclasses

from sglang.launch_plan.checkpoint import Tensor
from sglang.launch_plan.layout import Layout
from sglang.launch_plan.memory import GIB
from sglang.launch_plan.plan import Asked, Model

KIMI = Asked(
    layout=Layout(tp_size=8, pp_size=1, ep_size=4, attention_tp_size=8, layers=61, kv_heads=None),
    target=Model("kimi", [Tensor("model.layers.1.mlp.experts.0.w", (), 560 * GIB)], 1152.0, 61),
    draft=Model("draft", [Tensor("layers.0.q_proj.weight", (), 8 * GIB)], 512.0, 6),
    device="cuda",
    backends={"attention": "triton (the default on this machine)"},
    mem_fraction_static=0.9,
    max_total_tokens=None,
    context_length=262144,
    page_size=1,
    verify_width=8,
    verify_widths=[],
    graph_batches=[1, 2, 4],
    graphs="full",
    moe_a2a_backend="none",
    fraction_assumed=False,
    weights_as_stored=True,
    experts=384,
)


def asked(**changes) -> Asked:
    return dataclasses.replace(KIMI, **changes)
