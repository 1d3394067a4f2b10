"""The best-first build, one program per request; see tree_build.py for the rule.

A candidate is one integer, so that the best candidate is a plain maximum:

    bit  63 ... 32     31 ... 27      26 ... 19        18 ... 0
         path score    31 - rank      255 - parent     cell in the request's lattice [depths, ROWS, TOPK]

The path score's float32 bits are mapped so that integers compare as the floats do. Zero has two patterns there, but a
path score is never -0.0: sums start at 0.0, and only two negative zeros add up to one. Greater is better: the greater
path score, then the smaller rank, then the smaller parent id; the cell follows from the parent and never decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from sglang.kernels.draft_tree.tree_build import DraftTree

_SCORE_SHIFT = tl.constexpr(32)
_RANK_SHIFT = tl.constexpr(27)
_PARENT_SHIFT = tl.constexpr(19)
_RANK_MASK = tl.constexpr((1 << 5) - 1)
_PARENT_MASK = tl.constexpr((1 << 8) - 1)
_CELL_MASK = tl.constexpr((1 << 19) - 1)
_EMPTY = tl.constexpr(-(1 << 63))  # no candidate: below every key
# Stands in for _EMPTY where a key is unpacked: path score -inf, rank 0, parent 0, cell 0.
_FILLER = tl.constexpr((-0x7F800001 << 32) | (0x1F << 27) | (0xFF << 19))
# Up to so many nodes one warp keeps the offers of a tree, and its maximum needs no shared memory.
_NODES_PER_WARP = 128


def launch_build_tree(
    out: DraftTree,
    root_tokens: torch.Tensor,
    token_ids: torch.Tensor,
    steps: torch.Tensor,
    ranks: torch.Tensor | None,
) -> None:
    """Fill `out` from a lattice of `steps` [bs, depths, rows, topk] and `ranks` of the same shape, or None."""
    bs, nodes = out.tokens.shape
    if bs == 0:
        return
    _, depths, rows, topk = steps.shape
    _build_tree_kernel[(bs,)](
        *out,
        root_tokens.contiguous(),
        token_ids.contiguous(),
        steps.contiguous(),
        ranks if ranks is None else ranks.contiguous(),
        nodes,
        depths,
        ROWS=rows,
        TOPK=topk,
        BLOCK=triton.next_power_of_2(nodes),
        num_warps=1 if nodes <= _NODES_PER_WARP else 2,
    )


@triton.jit
def _build_tree_kernel(
    tokens_ptr,  # [bs, nodes] int64, as the next three
    parents_ptr,
    depths_ptr,
    ranks_ptr,
    path_scores_ptr,  # [bs, nodes] float32
    root_tokens_ptr,  # [bs] int64
    token_ids_ptr,  # [bs, depths, TOPK] int64
    steps_ptr,  # [bs, depths, ROWS, TOPK] float32
    step_ranks_ptr,  # [bs, depths, ROWS, TOPK] int64, or None
    nodes,
    depths,
    ROWS: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    steps_ptr += request * depths * ROWS * TOPK
    if step_ranks_ptr is not None:
        step_ranks_ptr += request * depths * ROWS * TOPK

    node = tl.arange(0, BLOCK)
    path_scores = tl.where(node == 0, 0.0, float("-inf"))
    chosen = tl.full([BLOCK], _FILLER, tl.int64)
    zeros = node * 0
    first_rank = zeros
    if step_ranks_ptr is not None:
        first_rank += tl.load(step_ranks_ptr).to(tl.int32)
    # Lane i holds what node i offers: of the lanes that a step computes, it keeps the parent's and the new node's.
    offers = tl.where(node == 0, _pack(path_scores + tl.load(steps_ptr), first_rank, node, zeros), _EMPTY)
    for current in range(1, nodes):
        best = tl.max(offers, 0)
        best = tl.where(best == _EMPTY, _FILLER, best)
        path_score, rank, parent, cell = _unpack(best)
        chosen = tl.where(node == current, best, chosen)
        path_scores = tl.where(node == current, path_score, path_scores)

        depth = cell // (ROWS * TOPK) + 1
        found = path_score > float("-inf")
        below = depth * (ROWS * TOPK)
        if ROWS > 1:
            below += rank * TOPK
        has_below = found & (depth < depths)
        following = cell + 1
        has_following = found & (following % TOPK != 0)
        step_below = tl.load(steps_ptr + below, mask=has_below, other=float("-inf"))
        step_following = tl.load(steps_ptr + following, mask=has_following, other=float("-inf"))
        if step_ranks_ptr is None:
            rank_below = rank * 0
            rank_following = rank + 1
        else:
            rank_below = tl.load(step_ranks_ptr + below, mask=has_below, other=0).to(tl.int32)
            rank_following = tl.load(step_ranks_ptr + following, mask=has_following, other=0).to(tl.int32)
        from_parent = _pack(path_scores + step_following, rank_following, node, following)
        offers = tl.where(node == parent, from_parent, offers)
        offers = tl.where(node == current, _pack(path_scores + step_below, rank_below, node, below), offers)

    path_score, rank, parent, cell = _unpack(chosen)
    depth = cell // (ROWS * TOPK) + 1
    linked = path_score > float("-inf")
    inside = node < nodes
    candidate = request * depths * TOPK + (depth - 1) * TOPK + rank
    tokens = tl.load(token_ids_ptr + candidate, mask=linked, other=0)
    tokens = tl.where(node == 0, tl.load(root_tokens_ptr + request), tokens)
    place = request * nodes + node
    tl.store(tokens_ptr + place, tokens, mask=inside)
    tl.store(parents_ptr + place, tl.where(linked, parent, -1), mask=inside)
    tl.store(depths_ptr + place, tl.where(linked, depth, 0), mask=inside)
    tl.store(ranks_ptr + place, tl.where(linked, rank, 0), mask=inside)
    tl.store(path_scores_ptr + place, path_scores, mask=inside)


@triton.jit
def _pack(score, rank, parent, cell):
    bits = score.to(tl.int32, bitcast=True)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    # Within the mask, x ^ mask is mask - x.
    rank_bits = (rank ^ _RANK_MASK).to(tl.int64) << _RANK_SHIFT
    parent_bits = (parent ^ _PARENT_MASK).to(tl.int64) << _PARENT_SHIFT
    key = (ordered << _SCORE_SHIFT) | rank_bits | parent_bits | cell.to(tl.int64)
    return tl.where(score > float("-inf"), key, _EMPTY)


@triton.jit
def _unpack(key):
    bits = (key >> _SCORE_SHIFT).to(tl.int32)
    score = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    rank = ((key >> _RANK_SHIFT) & _RANK_MASK).to(tl.int32) ^ _RANK_MASK
    parent = ((key >> _PARENT_SHIFT) & _PARENT_MASK).to(tl.int32) ^ _PARENT_MASK
    return score, rank, parent, (key & _CELL_MASK).to(tl.int32)
