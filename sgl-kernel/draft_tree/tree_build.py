"""The best-first build: candidates of a block to the nodes of a tree under a budget.

    depth 1: A -0.5, B -1.0         R               node    0  1  2  3  4
    depth 2: C -0.25, D -2.0        |-- 1: A        token   R  A  C  B  C
    budget 4                        |   `-- 2: C    parent -1  0  1  0  3
                                    `-- 3: B        depth   0  1  2  1  2
                                        `-- 4: C    rank    0  0  0  1  0

In the order of their path scores: A -0.5, C below A -0.75, B -1.0, C below B -1.25. A fifth node would be D below A,
-2.5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import pad

from sglang.kernels.draft_tree import outputs
from sglang.kernels.draft_tree.dispatch import Backend, uses_triton

MAX_BUDGET = 255
MAX_TOPK = 16
MAX_DEPTHS = 31

# A candidate's place among equal path scores: its rank above its parent's id, the smaller first.
_RANK_SHIFT = 8
_LAST_PLACE = 1 << 62


class DraftTree(NamedTuple):
    """The trees of a batch, nodes in the order in which they were chosen. Node 0 is the root."""

    tokens: torch.Tensor  # [bs, 1 + budget] int64, padding 0
    parents: torch.Tensor  # [bs, 1 + budget] int64, -1 for the root and padding; a parent precedes its children
    depths: torch.Tensor  # [bs, 1 + budget] int64, 0 for the root and padding
    ranks: torch.Tensor  # [bs, 1 + budget] int64, the candidate's rank at its depth; 0 for the root and padding
    path_scores: torch.Tensor  # [bs, 1 + budget] float32, 0 for the root, -inf for padding


class Lattice(NamedTuple):
    """Step scores of every candidate below every parent it can have, each row in the order of choice."""

    steps: torch.Tensor  # [bs, depths, rows, topk] float32, descending; row: the parent's rank, or one for all parents
    ranks: torch.Tensor | None  # like steps, int64: candidate ranks; None if they are 0, 1, ... in every row


def build_tree(
    root_tokens: torch.Tensor,
    token_ids: torch.Tensor,
    scores: torch.Tensor,
    budget: int,
    pair_scores: torch.Tensor | None = None,
    *,
    out: DraftTree | None = None,
    backend: Backend | None = None,
) -> DraftTree:
    """Choose `budget` nodes, each time the candidate with the greatest path score.

    A candidate is rank r at depth d + 1 below a chosen node of depth d. Its step score is `scores[d, r]`, plus
    `pair_scores[d - 1, parent's rank, r]` where that is given and d >= 1; its path score is its parent's path score
    plus its step score, in float32. Every parent offers its candidates in the order of their step scores, the smaller
    rank first among equals. Of parents that offer equal path scores, the one that offers the smaller rank wins, then
    the smaller node id. A step score of -inf or NaN is never taken; nodes that find no candidate are padding.

    With log-probabilities as scores this maximizes the expected number of accepted draft tokens under the budget
    (DDTree, arXiv 2604.12989).

    Args:
        root_tokens: [bs] int64.
        token_ids: [bs, depths, topk] int64, depths 1 to 31, topk 1 to 16.
        scores: [bs, depths, topk] float32. Without `pair_scores` they must descend within each depth.
        budget: draft nodes per tree, root excluded: 1 to 255.
        pair_scores: [bs, depths - 1, topk, topk] float32: rank of the parent, rank of the child one depth below.
        out: tensors to write the result to.
        backend: see dispatch.py.

    Raises ValueError for a size or a dtype out of these bounds.
    """
    _check(root_tokens, token_ids, scores, budget, pair_scores)
    bs, device = scores.shape[0], scores.device
    if out is not None:
        outputs.check("build_tree", out, _spec(bs, budget))
    lattice = make_lattice(scores, pair_scores)
    if not uses_triton(device, backend):
        return outputs.deliver(_build_tree_torch(root_tokens, token_ids, lattice, budget), out)
    from sglang.kernels.draft_tree.tree_build_triton import launch_build_tree

    out = empty_tree(bs, budget, device) if out is None else out
    launch_build_tree(out, root_tokens, token_ids, lattice.steps, lattice.ranks)
    return out


def empty_tree(bs: int, budget: int, device: torch.device | str) -> DraftTree:
    """Uninitialized tensors for `build_tree(out=...)`."""
    return outputs.empty(DraftTree, _spec(bs, budget), device)


def _spec(bs: int, budget: int) -> outputs.Spec:
    ids = ((bs, 1 + budget), torch.int64)
    return (ids, ids, ids, ids, ((bs, 1 + budget), torch.float32))


def make_lattice(scores: torch.Tensor, pair_scores: torch.Tensor | None) -> Lattice:
    """The step scores of `build_tree`, each row sorted; see there for the arguments."""
    if pair_scores is None:
        return Lattice(scores[:, :, None, :], None)
    topk = scores.shape[2]
    steps = scores[:, :, None, :].repeat(1, 1, topk, 1)
    steps[:, 1:] += pair_scores
    return Lattice(*steps.sort(dim=-1, descending=True, stable=True))


def _build_tree_torch(root_tokens: torch.Tensor, token_ids: torch.Tensor, lattice: Lattice, budget: int) -> DraftTree:
    bs, depths, rows, topk = lattice.steps.shape
    device = lattice.steps.device
    # One more column ends every row, and one more depth the tree: both hold -inf, so that nothing is offered there.
    ranks = torch.arange(topk, device=device).expand(bs, depths, rows, topk) if lattice.ranks is None else lattice.ranks
    offers = lattice.steps.masked_fill(lattice.steps.isnan(), -torch.inf)  # neither is ever taken
    steps = pad(offers, (0, 1, 0, 0, 0, 1), value=-torch.inf).flatten(1)
    ranks = pad(ranks, (0, 1, 0, 0, 0, 1)).flatten(1)
    row_cells = topk + 1
    depth_cells = rows * row_cells
    last_cell = steps.shape[1] - 1
    # Where the row of a candidate's own candidates begins.
    below = (torch.arange(steps.shape[1], device=device) // depth_cells + 1) * depth_cells
    below = (below + ranks * (row_cells if rows > 1 else 0)).clamp(max=last_cell)

    # Every chosen node offers one candidate, the first of its row that is not chosen yet: its path score, its place
    # among equals, and its cell in the lattice.
    node_ids = torch.arange(1 + budget, device=device).expand(bs, -1)
    offered = torch.full((bs, 1 + budget), -torch.inf, device=device)
    place = torch.zeros(bs, 1 + budget, dtype=torch.int64, device=device)
    cells = torch.zeros_like(place)
    offered[:, 0] = steps[:, 0]
    place[:, 0] = ranks[:, 0] << _RANK_SHIFT

    path_scores = torch.full_like(offered, -torch.inf)
    path_scores[:, 0] = 0.0
    parents = torch.zeros_like(place)
    chosen = torch.zeros_like(place)
    for node in range(1, 1 + budget):
        here = slice(node, node + 1)
        best = offered.amax(dim=1, keepdim=True)
        parent = torch.where(offered == best, place, _LAST_PLACE).argmin(dim=1, keepdim=True)
        cell = cells.gather(1, parent)
        path_scores[:, here], parents[:, here], chosen[:, here] = best, parent, cell
        # What this node offers first, and what its parent offers next.
        offering = torch.cat([node_ids[:, here], parent], dim=1)
        next_cells = torch.cat([below.gather(1, cell), cell + 1], dim=1).clamp(max=last_cell)
        scores = path_scores.gather(1, offering) + steps.gather(1, next_cells)
        offered.scatter_(1, offering, torch.where(best > -torch.inf, scores, -torch.inf))
        place.scatter_(1, offering, (ranks.gather(1, next_cells) << _RANK_SHIFT) | offering)
        cells.scatter_(1, offering, next_cells)

    padding = path_scores == -torch.inf
    depth_above = (chosen // depth_cells).masked_fill(padding, 0)
    rank = ranks.gather(1, chosen).masked_fill(padding, 0)
    tokens = token_ids.flatten(1).gather(1, depth_above * topk + rank).masked_fill(padding, 0)
    depth = (depth_above + 1).masked_fill(padding, 0)
    for column, root in ((tokens, root_tokens), (parents, -1), (depth, 0), (rank, 0)):
        column[:, 0] = root
    return DraftTree(tokens, parents.masked_fill(padding, -1), depth, rank, path_scores)


def _check(root_tokens, token_ids, scores, budget, pair_scores) -> None:
    bs, depths, topk = scores.shape
    for name, value, limit in (
        ("budget", budget, MAX_BUDGET),
        ("depths", depths, MAX_DEPTHS),
        ("topk", topk, MAX_TOPK),
    ):
        if not 1 <= value <= limit:
            raise ValueError(f"build_tree: {name} is {value}; it must be 1 to {limit}")
    expected = {
        "root_tokens": (root_tokens, (bs,), torch.int64),
        "token_ids": (token_ids, (bs, depths, topk), torch.int64),
        "scores": (scores, (bs, depths, topk), torch.float32),
    }
    if pair_scores is not None:
        expected["pair_scores"] = (pair_scores, (bs, depths - 1, topk, topk), torch.float32)
    for name, (tensor, shape, dtype) in expected.items():
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(
                f"build_tree: {name} is {tensor.dtype} {list(tensor.shape)}; with scores [{bs}, {depths}, {topk}] "
                f"it must be {dtype} {list(shape)}"
            )
