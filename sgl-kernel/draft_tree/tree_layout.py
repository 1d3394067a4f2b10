"""From the parents of nodes to what the verify forward reads: mask, positions and links.

parent -1  0  0  2  2       mask of the rows      next_child    1 -1  3 -1 -1
0: A                        0  1 0 0 0 0          next_sibling -1  2 -1  4 -1
|-- 1: B                    1  1 1 0 0 0          position      p  p+1  p+1  p+2  p+2
`-- 2: C                    2  1 0 1 0 0
    |-- 3: D                3  1 0 1 1 0
    `-- 4: E                4  1 0 1 0 1

The flat mask of attention backends is one after the other of the requests; a request with a prefix of p tokens has
`nodes` rows of p + nodes cells: p of the prefix, all true, then its row of the mask above.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from sglang.kernels.draft_tree import outputs
from sglang.kernels.draft_tree.dispatch import Backend, uses_triton


class TreeLayout(NamedTuple):
    """What the verify forward reads of the trees of a batch."""

    ancestor_mask: torch.Tensor  # [bs, nodes, nodes] bool, true where the column is the row's ancestor or itself
    positions: torch.Tensor  # [bs, nodes] int64, prefix length + depth
    next_child: torch.Tensor  # [bs, nodes] int64, id of the node's first child, or -1
    next_sibling: torch.Tensor  # [bs, nodes] int64, id of the next node with the same parent, or -1


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


def node_positions(prefix_lens: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
    """[bs, nodes] int64: `prefix_lens` [bs] int, the tokens before the root, plus `depths` [bs, nodes] int64."""
    return prefix_lens[:, None].to(torch.int64) + depths


def child_links(parents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First child and next sibling of every node in the order of ids, [bs, nodes] int64 each; -1 where there is none.

    Padding has no links and is in none.
    """
    bs, nodes = parents.shape
    node = torch.arange(nodes, device=parents.device)
    linked = parents >= 0
    children = linked[:, None, :] & (parents[:, None, :] == node[:, None])
    siblings = linked[:, None, :] & (parents[:, None, :] == parents[:, :, None]) & (node > node[:, None])

    def first(wanted: torch.Tensor) -> torch.Tensor:
        found = torch.where(wanted, node, nodes).amin(dim=-1)
        return torch.where(found < nodes, found, -1)

    return first(children), first(siblings)


def write_flat_mask(
    mask: torch.Tensor, prefix_lens: torch.Tensor, out: torch.Tensor, *, write_prefix: bool = True
) -> torch.Tensor:
    """Write the flat mask of attention backends to `out` and return it.

    Args:
        mask: [bs, nodes, nodes] bool, from ancestor_mask.
        prefix_lens: [bs] int.
        out: [cells] bool or uint8, contiguous. Cells behind the last request stay as they are; what does not fit is
            left out.
        write_prefix: whether to write the prefix columns too. A backend that skips them still reads the tree's columns
            at this layout.

    The time of this reference grows with the size of `out`; the fused kernel of compile_tree depends on the trees.
    """
    _check_flat(out)
    bs, nodes, _ = mask.shape
    if bs == 0:
        return out
    width = prefix_lens.to(torch.int64) + nodes
    ends = (width * nodes).cumsum(0)
    cell = torch.arange(out.numel(), device=out.device)
    request = torch.searchsorted(ends, cell, right=True)
    inside = request < bs
    request = request.clamp(max=bs - 1)
    within = torch.where(inside, cell - (ends - width * nodes)[request], 0)
    row, column = within // width[request], within % width[request] - (width - nodes)[request]
    in_tree = column >= 0
    value = ~in_tree | mask[request, row, column.clamp(min=0)]
    written = inside if write_prefix else inside & in_tree
    return out.copy_(torch.where(written, value.to(out.dtype), out))


def compile_tree(
    parents: torch.Tensor,
    depths: torch.Tensor,
    prefix_lens: torch.Tensor,
    flat_mask: torch.Tensor | None = None,
    *,
    write_prefix: bool = True,
    out: TreeLayout | None = None,
    backend: Backend | None = None,
) -> TreeLayout:
    """Everything that the verify forward reads of trees, in one launch (two with the prefix columns of `flat_mask`).

    Args:
        parents: [bs, nodes] int64.
        depths: [bs, nodes] int64, as build_tree returns them.
        prefix_lens: [bs] int32 or int64. A padded batch may hold any length >= 0 in the rows that are no request.
        flat_mask: [cells] bool or uint8, contiguous, written as write_flat_mask does; None: not written.
        write_prefix: see write_flat_mask.
        out: tensors to write the result to.
        backend: see dispatch.py.

    Raises ValueError for a flat mask or an `out` of another shape, layout or dtype.
    """
    bs, nodes = parents.shape
    if flat_mask is not None:
        _check_flat(flat_mask)
    if out is not None:
        outputs.check("compile_tree", out, _spec(bs, nodes))
    if uses_triton(parents.device, backend):
        from sglang.kernels.draft_tree.tree_layout_triton import launch_compile_tree

        out = empty_layout(bs, nodes, parents.device) if out is None else out
        launch_compile_tree(out, flat_mask, parents, depths, prefix_lens, write_prefix)
        return out
    mask = ancestor_mask(parents)
    if flat_mask is not None:
        write_flat_mask(mask, prefix_lens, flat_mask, write_prefix=write_prefix)
    return outputs.deliver(TreeLayout(mask, node_positions(prefix_lens, depths), *child_links(parents)), out)


def empty_layout(bs: int, nodes: int, device: torch.device | str) -> TreeLayout:
    """Uninitialized tensors for `compile_tree(out=...)`."""
    return outputs.empty(TreeLayout, _spec(bs, nodes), device)


def _check_flat(flat_mask: torch.Tensor) -> None:
    if flat_mask.dim() != 1 or flat_mask.dtype not in (torch.bool, torch.uint8) or not flat_mask.is_contiguous():
        raise ValueError(
            f"flat mask: found {flat_mask.dtype} {list(flat_mask.shape)} with strides {flat_mask.stride()}; it must be "
            "one contiguous dimension of torch.bool or torch.uint8"
        )


def _spec(bs: int, nodes: int) -> outputs.Spec:
    ids = ((bs, nodes), torch.int64)
    return (((bs, nodes, nodes), torch.bool), ids, ids, ids)
