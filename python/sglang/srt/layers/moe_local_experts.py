"""Experts on a CPU where each rank has a part of them.

Ranks are told by expert id -1 that a token's expert is another rank's. Upstream's torch code takes it for an index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch


def skips_remote_experts(forward: Callable) -> Callable:
    """Wrap `moe_forward_native`: the experts of other ranks add nothing here; the ranks add up their outputs."""

    @functools.wraps(forward)
    def with_local_experts(layer, x, topk_output, moe_runner_config):
        ids, topk = topk_output.topk_ids.view(-1), topk_output.topk_ids.shape[1]
        pairs = (ids >= 0).nonzero().view(-1)  # of a token and one of its experts
        if len(pairs) == len(ids):
            return forward(layer, x, topk_output, moe_runner_config)
        outputs = torch.zeros_like(x)
        if len(pairs):
            weights = topk_output.topk_weights.reshape(-1)[pairs, None]
            pairwise = topk_output._replace(topk_ids=ids[pairs, None], topk_weights=weights)
            tokens = pairs // topk
            outputs.index_add_(0, tokens, forward(layer, x[tokens], pairwise, moe_runner_config))
        return outputs

    return with_local_experts
