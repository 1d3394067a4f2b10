"""Experts on a CPU where each rank has a part of them.

Ranks are told by expert id -1 that a token's expert is another rank's. Upstream's torch code takes it for an index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


def skips_remote_experts(forward: Callable) -> Callable:
    """Wrap `moe_forward_native`: what experts of other ranks do counts nothing here; the ranks add up their outputs."""

    @functools.wraps(forward)
    def with_local_experts(layer, x, topk_output, moe_runner_config):
        remote = topk_output.topk_ids < 0
        local = topk_output._replace(
            topk_ids=topk_output.topk_ids.masked_fill(remote, 0),
            topk_weights=topk_output.topk_weights.masked_fill(remote, 0.0),
        )
        return forward(layer, x, local, moe_runner_config)

    return with_local_experts
