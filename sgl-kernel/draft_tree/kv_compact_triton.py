"""Rows of the accepted nodes, moved in many buffers or gathered from one, in one launch; see kv_compact.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_TILE_WORDS = 2048  # words that one program holds: all rows of a request, so many columns wide
_GATHER_NUMBERS = 1024  # of a row that one program copies


def launch_move_rows(
    addresses: torch.Tensor,
    row_words: torch.Tensor,
    row_strides: torch.Tensor,
    longest_row: int,
    word_bytes: int,
    slots: torch.Tensor,
    node_ids: torch.Tensor,
) -> None:
    """Move rows in the buffers of a table: [buffers] int64 addresses, words per row, words from row to row.

    `slots` [bs, nodes] and `node_ids` [bs, depth] are int64; their rows may have gaps behind them.
    """
    bs, depth = node_ids.shape
    if bs == 0:
        return
    depth_block = triton.next_power_of_2(depth)
    words = max(16, min(triton.next_power_of_2(longest_row), _TILE_WORDS // depth_block))
    grid = (bs, triton.cdiv(longest_row, words), addresses.numel())
    _move_rows_kernel[grid](
        addresses,
        row_words,
        row_strides,
        slots,
        node_ids,
        slots.stride(0),
        node_ids.stride(0),
        depth,
        WORD=tl.int64 if word_bytes == 8 else tl.uint8,
        DEPTH_BLOCK=depth_block,
        WORDS=words,
    )


@triton.jit
def _move_rows_kernel(
    addresses_ptr,  # [buffers] int64, as the next two
    row_words_ptr,
    row_strides_ptr,
    slots_ptr,  # [bs, nodes] int64
    node_ids_ptr,  # [bs, depth] int64, -1 behind the path
    slots_stride,  # from one request to the next, as the next one
    node_ids_stride,
    depth,
    WORD: tl.constexpr,
    DEPTH_BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    buffer = tl.program_id(2)
    move = tl.arange(0, DEPTH_BLOCK)
    node = tl.load(node_ids_ptr + request * node_ids_stride + move, mask=move < depth, other=-1)
    slots_ptr += request * slots_stride
    destination = tl.load(slots_ptr + move, mask=node >= 0, other=0)
    source = tl.load(slots_ptr + node, mask=node >= 0, other=0)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    moved = (destination != source)[:, None] & (word < tl.load(row_words_ptr + buffer))[None, :]
    base = tl.load(addresses_ptr + buffer).to(tl.pointer_type(WORD))
    stride = tl.load(row_strides_ptr + buffer)
    rows = tl.load(base + source[:, None] * stride + word[None, :], mask=moved)
    # The source of one row may be the destination of another, which another thread holds.
    tl.debug_barrier()
    tl.store(base + destination[:, None] * stride + word[None, :], rows, mask=moved)


def launch_gather_rows(out: torch.Tensor, hidden: torch.Tensor, node_ids: torch.Tensor) -> None:
    """Fill `out` [bs, depth, ...] from `hidden` [bs, nodes, ...] by `node_ids` [bs, depth] int64."""
    if out.numel() == 0:
        return
    nodes, depth = hidden.shape[1], node_ids.shape[1]
    numbers = out[0, 0].numel()
    block = min(triton.next_power_of_2(numbers), _GATHER_NUMBERS)
    grid = (out.shape[0] * depth, triton.cdiv(numbers, block))
    _gather_rows_kernel[grid](
        out, hidden.contiguous(), node_ids, node_ids.stride(0), nodes, depth, numbers, BLOCK=block
    )


@triton.jit
def _gather_rows_kernel(
    out_ptr,  # [bs, depth, numbers]
    hidden_ptr,  # [bs, nodes, numbers]
    node_ids_ptr,  # [bs, depth] int64, -1 behind the path
    node_ids_stride,  # from one request to the next
    nodes,
    depth,
    numbers,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    request = row // depth
    node = tl.maximum(tl.load(node_ids_ptr + request * node_ids_stride + row % depth), 0)
    number = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = number < numbers
    values = tl.load(hidden_ptr + (request * nodes + node) * numbers + number, mask=inside)
    tl.store(out_ptr + row * numbers + number, values, mask=inside)
