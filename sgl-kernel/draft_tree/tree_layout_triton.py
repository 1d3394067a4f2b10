"""Ancestor mask, positions, links and flat mask of trees in one launch; see tree_layout.py for what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from sglang.kernels.draft_tree.tree_layout import TreeLayout

_TILE_CELLS = 4096  # cells of the mask that one program holds
_PREFIX_BLOCK = 1024
_PREFIX_SPLITS = 8  # programs that share the prefix columns of one row


def launch_compile_tree(
    out: TreeLayout,
    flat_mask: torch.Tensor | None,
    parents: torch.Tensor,
    depths: torch.Tensor,
    prefix_lens: torch.Tensor,
    write_prefix: bool,
) -> None:
    """Fill `out`, and `flat_mask` if there is one; shapes as in compile_tree."""
    bs, nodes = parents.shape
    if bs == 0:
        return
    columns = triton.next_power_of_2(nodes)
    rows = max(1, min(columns, _TILE_CELLS // columns, 16))
    prefix_lens = prefix_lens.contiguous()
    cells = 0 if flat_mask is None else flat_mask.numel()
    # Cells are bytes either way, and a kernel stores bytes as they are.
    flat_bytes = None if flat_mask is None else flat_mask.view(torch.uint8)
    _compile_tree_kernel[(bs, triton.cdiv(nodes, rows))](
        out.ancestor_mask.view(torch.uint8),
        out.positions,
        out.next_child,
        out.next_sibling,
        flat_bytes,
        parents.contiguous(),
        depths.contiguous(),
        prefix_lens,
        nodes,
        cells,
        REQUESTS=triton.next_power_of_2(bs),
        ROWS=rows,
        COLUMNS=columns,
    )
    if flat_mask is not None and write_prefix:
        _fill_prefix_kernel[(bs, nodes, _PREFIX_SPLITS)](
            flat_bytes,
            prefix_lens,
            nodes,
            cells,
            REQUESTS=triton.next_power_of_2(bs),
            SPLITS=_PREFIX_SPLITS,
            BLOCK=_PREFIX_BLOCK,
        )


@triton.jit
def _compile_tree_kernel(
    mask_ptr,  # [bs, nodes, nodes] uint8
    positions_ptr,  # [bs, nodes] int64, as the next two
    next_child_ptr,
    next_sibling_ptr,
    flat_ptr,  # [cells] uint8, or None
    parents_ptr,  # [bs, nodes] int64
    depths_ptr,  # [bs, nodes] int64
    prefix_lens_ptr,  # [bs] int32 or int64
    nodes,
    cells,
    REQUESTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    in_rows = row < nodes
    parents_ptr += request * nodes
    row_parent = _parent(parents_ptr, row, in_rows)
    column_parent = _parent(parents_ptr, column, column < nodes)
    is_later = column[None, :] > row[:, None]

    child = tl.where(is_later & (column_parent[None, :] == row[:, None]), column[None, :], COLUMNS)
    has_parent = (row_parent >= 0)[:, None]
    sibling = is_later & has_parent & (column_parent[None, :] == row_parent[:, None])
    sibling = tl.where(sibling, column[None, :], COLUMNS)
    place = request * nodes + row
    prefix = tl.load(prefix_lens_ptr + request).to(tl.int64)
    tl.store(positions_ptr + place, prefix + tl.load(depths_ptr + place, mask=in_rows, other=0), mask=in_rows)
    tl.store(next_child_ptr + place, _or_none(tl.min(child, 1), COLUMNS), mask=in_rows)
    tl.store(next_sibling_ptr + place, _or_none(tl.min(sibling, 1), COLUMNS), mask=in_rows)

    visible = column[None, :] == row[:, None]
    ancestor = row_parent
    while tl.max(ancestor, 0) >= 0:
        visible = visible | (column[None, :] == ancestor[:, None])
        ancestor = _parent(parents_ptr, ancestor, ancestor >= 0)
    visible = visible.to(tl.uint8)
    inside = in_rows[:, None] & (column < nodes)[None, :]
    tl.store(mask_ptr + place[:, None] * nodes + column[None, :], visible, mask=inside)
    if flat_ptr is not None:
        start = _flat_start(prefix_lens_ptr, request, nodes, REQUESTS)
        cell = start + row[:, None] * (prefix + nodes) + prefix + column[None, :]
        tl.store(flat_ptr + cell, visible, mask=inside & (cell < cells))


@triton.jit
def _fill_prefix_kernel(
    flat_ptr,  # [cells] uint8
    prefix_lens_ptr,  # [bs] int32 or int64
    nodes,
    cells,
    REQUESTS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    prefix = tl.load(prefix_lens_ptr + request).to(tl.int64)
    start = _flat_start(prefix_lens_ptr, request, nodes, REQUESTS) + tl.program_id(1) * (prefix + nodes)
    first = tl.program_id(2) * BLOCK
    for offset in range(first, prefix, SPLITS * BLOCK):
        column = offset + tl.arange(0, BLOCK)
        cell = start + column
        tl.store(flat_ptr + cell, tl.full([BLOCK], 1, tl.uint8), mask=(column < prefix) & (cell < cells))


@triton.jit
def _parent(parents_ptr, node, exists):
    # Buffers that hold no tree yet may link a node to itself: only smaller ids count, so every climb ends.
    parent = tl.load(parents_ptr + node, mask=exists, other=-1).to(tl.int32)
    return tl.where(parent < node, parent, -1)


@triton.jit
def _flat_start(prefix_lens_ptr, request, nodes, REQUESTS: tl.constexpr):
    before = tl.arange(0, REQUESTS)
    lens = tl.load(prefix_lens_ptr + before, mask=before < request, other=0).to(tl.int64)
    return tl.sum(tl.where(before < request, (lens + nodes) * nodes, 0), 0)


@triton.jit
def _or_none(found, COLUMNS: tl.constexpr):
    return tl.where(found < COLUMNS, found, -1)
