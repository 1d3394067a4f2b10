"""Expert parallelism for upstream's mixture of experts on torch alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def local_experts_only(forward: Callable) -> Callable:
    """Wrap `moe_forward_native`: experts of other ranks, whose ids are -1 here, add nothing to this rank's sum.

    Upstream's function takes every id for an index, and counts an expert once for each token. So it is asked for one
    choice at a time, with the tokens whose choice lies here; the ranks' sums add up to that of one rank with all.
    """

    @functools.wraps(forward)
    def run(layer: Any, x: torch.Tensor, topk_output: Any, moe_runner_config: Any) -> torch.Tensor:
        if layer.moe_ep_size == 1:
            return forward(layer, x, topk_output, moe_runner_config)
        output = torch.zeros_like(x)
        for weights, ids in zip(topk_output.topk_weights.unbind(1), topk_output.topk_ids.unbind(1), strict=True):
            here = (ids >= 0).nonzero().squeeze(1)
            if len(here):
                choice = topk_output._replace(topk_weights=weights[here, None], topk_ids=ids[here, None])
                output.index_add_(0, here, forward(layer, x[here], choice, moe_runner_config).to(output.dtype))
        return output

    return run
