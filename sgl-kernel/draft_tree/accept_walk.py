"""The walk: which nodes of each tree are accepted, given the target's own token at every node.

tokens          draws          node  0  1  2  3  4
0: A            0: C         parent -1  0  0  2  2
|-- 1: B        1: X         tokens  A  B  C  D  E
`-- 2: C        2: E          draws  C  X  E  Y  Z
    |-- 3: D    3: Y
    `-- 4: E    4: Z

From the root A the target wants C: node 2. There it wants E: node 4. There it wants Z, and no child carries Z.
node_ids 0 2 4, length 3, emitted C E Z; Z is the bonus token and the root of the next round.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from sglang.kernels.draft_tree import outputs
from sglang.kernels.draft_tree.dispatch import Backend, uses_triton


class AcceptedPath(NamedTuple):
    """What one verify accepts. `length` counts the bonus token, and equals the KV rows to commit (root included)."""

    node_ids: torch.Tensor  # [bs, depth] int64, from the root downwards, padded with -1
    length: torch.Tensor  # [bs] int32, at least 1
    tokens: torch.Tensor  # [bs, depth] int64, the emitted tokens, padded with 0
    bonus: torch.Tensor  # [bs] int64, the last emitted token


def walk(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    draws: torch.Tensor,
    depth: int | None = None,
    *,
    out: AcceptedPath | None = None,
    backend: Backend | None = None,
) -> AcceptedPath:
    """Follow the target's draws from the root: a step to the child that carries the draw, until there is none.

    Args:
        tokens: [bs, nodes] int64, the token of every node.
        parents: [bs, nodes] int64.
        draws: [bs, nodes] int64, the target's token after every node.
        depth: columns of the result: the number of nodes on the longest path, root included. Default: the number of
            nodes. A walk that would go deeper ends there.
        out: tensors to write the result to.
        backend: see dispatch.py.

    Of two children that carry the same token the first one is taken. Nothing here reads a value back to the host.
    """
    bs, nodes = tokens.shape
    depth = nodes if depth is None else depth
    if not 1 <= depth <= nodes:
        raise ValueError(f"walk: depth is {depth}; with {nodes} nodes it must be 1 to {nodes}")
    if out is not None:
        outputs.check("walk", out, _spec(bs, depth))
    if not uses_triton(tokens.device, backend):
        return outputs.deliver(_walk_torch(tokens, parents, draws, depth), out)
    from sglang.kernels.draft_tree.accept_walk_triton import launch_walk

    out = empty_path(bs, depth, tokens.device) if out is None else out
    launch_walk(out, tokens, parents, draws)
    return out


def empty_path(bs: int, depth: int, device: torch.device | str) -> AcceptedPath:
    """Uninitialized tensors for `walk(out=...)`."""
    return outputs.empty(AcceptedPath, _spec(bs, depth), device)


def _spec(bs: int, depth: int) -> outputs.Spec:
    per_depth = ((bs, depth), torch.int64)
    return (per_depth, ((bs,), torch.int32), per_depth, ((bs,), torch.int64))


def _walk_torch(tokens: torch.Tensor, parents: torch.Tensor, draws: torch.Tensor, depth: int) -> AcceptedPath:
    bs, nodes = tokens.shape
    node = torch.arange(nodes, device=tokens.device).expand(bs, nodes)
    above = parents.clamp(min=0)
    wanted = (parents >= 0) & (tokens == draws.gather(1, above))

    # For every node the child that the walk would take from it; `nodes` where there is none.
    nothing = torch.full_like(tokens, nodes)
    child = nothing.scatter_reduce(1, above, torch.where(wanted, node, nothing), "amin")
    reached = wanted & (child.gather(1, above) == node)
    reached[:, 0] = True
    # Accepted is a node all of whose ancestors are: pointer doubling, as in ancestor_mask.
    for _ in range((nodes - 1).bit_length()):
        reached = reached & reached.gather(1, above)
        above = above.gather(1, above)

    # A parent precedes its children, so the accepted nodes in order of their ids are the path.
    path = torch.where(reached, node, nothing).sort(dim=1).values[:, :depth]
    taken = path < nodes
    length = taken.sum(dim=1, dtype=torch.int32)
    emitted = draws.gather(1, torch.where(taken, path, 0)).masked_fill(~taken, 0)
    bonus = emitted.gather(1, length[:, None].to(torch.int64) - 1).squeeze(1)
    return AcceptedPath(node_ids=path.masked_fill(~taken, -1), length=length, tokens=emitted, bonus=bonus)
