"""The walk along the target's draws, one program per request; see accept_walk.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from sglang.kernels.draft_tree.accept_walk import AcceptedPath


def launch_walk(out: AcceptedPath, tokens: torch.Tensor, parents: torch.Tensor, draws: torch.Tensor) -> None:
    """Fill `out` [bs, depth] from tensors [bs, nodes]."""
    bs, nodes = tokens.shape
    if bs == 0:
        return
    depth = out.node_ids.shape[1]
    _walk_kernel[(bs,)](
        *out,
        tokens.contiguous(),
        parents.contiguous(),
        draws.contiguous(),
        nodes,
        depth,
        BLOCK=triton.next_power_of_2(nodes),
        DEPTH_BLOCK=triton.next_power_of_2(depth),
        num_warps=1,
    )


@triton.jit
def _walk_kernel(
    node_ids_ptr,  # [bs, depth] int64
    length_ptr,  # [bs] int32
    emitted_ptr,  # [bs, depth] int64
    bonus_ptr,  # [bs] int64
    tokens_ptr,  # [bs, nodes] int64, as the next two
    parents_ptr,
    draws_ptr,
    nodes,
    depth,
    BLOCK: tl.constexpr,
    DEPTH_BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    draws_ptr += request * nodes
    candidate = tl.arange(0, BLOCK)
    inside = candidate < nodes
    tokens = tl.load(tokens_ptr + request * nodes + candidate, mask=inside, other=0)
    parents = tl.load(parents_ptr + request * nodes + candidate, mask=inside, other=-1).to(tl.int32)

    step = tl.arange(0, DEPTH_BLOCK)
    draw = tl.load(draws_ptr)
    node_ids = tl.where(step == 0, 0, -1)
    emitted = tl.where(step == 0, draw, 0)
    node = 0
    length = 1
    # A walk that has ended stands at node BLOCK, below which there is nothing.
    for level in range(1, depth):
        wanted = (parents == node) & (tokens == draw) & (candidate > node)
        node = tl.min(tl.where(wanted, candidate, BLOCK), 0)
        goes_on = node < BLOCK
        draw = tl.load(draws_ptr + node, mask=goes_on, other=draw)
        here = (step == level) & goes_on
        node_ids = tl.where(here, node, node_ids)
        emitted = tl.where(here, draw, emitted)
        length += goes_on.to(tl.int32)

    place = request * depth + step
    tl.store(node_ids_ptr + place, node_ids, mask=step < depth)
    tl.store(emitted_ptr + place, emitted, mask=step < depth)
    tl.store(length_ptr + request, length)
    tl.store(bonus_ptr + request, draw)
