"""From the parents of nodes to their ancestors and depths. The package's docstring says what `parents` holds."""

from __future__ import annotations

import torch


def chain_parents(bs: int, nodes: int, device: torch.device | str) -> torch.Tensor:
    """Parents of the chain of `nodes` nodes: [bs, nodes] int64, a view without storage of its own per request."""
    return torch.arange(-1, nodes - 1, dtype=torch.int64, device=device).expand(bs, nodes)


def ancestor_mask(parents: torch.Tensor) -> torch.Tensor:
    """[bs, nodes, nodes] bool: true where the column is an ancestor of the row's node, or that node itself.

    Pointer doubling: after k steps a row holds its 2**k nearest ancestors, so the number of steps depends on the shape
    alone.
    """
    bs, nodes = parents.shape
    mask = torch.eye(nodes, dtype=torch.bool, device=parents.device).expand(bs, nodes, nodes)
    pointer = parents
    for _ in range((nodes - 1).bit_length()):
        linked = pointer >= 0
        source = pointer.clamp(min=0)
        above = mask.gather(1, source[:, :, None].expand(bs, nodes, nodes))
        mask = mask | (above & linked[:, :, None])
        pointer = torch.where(linked, pointer.gather(1, source), pointer)
    return mask


def node_depths(mask: torch.Tensor) -> torch.Tensor:
    """Depth of every node, [bs, nodes] int64, from the `mask` of ancestor_mask; the root and padding have depth 0."""
    return mask.sum(dim=-1) - 1
