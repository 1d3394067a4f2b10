"""Rows of many buffers moved in one launch; see kv_compact.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_TILE_WORDS = 2048  # words that one program holds: all rows of a request, so many columns wide


def launch_move_rows(
    addresses: torch.Tensor,
    row_words: torch.Tensor,
    row_strides: torch.Tensor,
    longest_row: int,
    word_bytes: int,
    destination: torch.Tensor,
    source: torch.Tensor,
    depth: int,
) -> None:
    """Move rows in the buffers of a table: [buffers] int64 addresses, words per row, words from row to row."""
    if destination.numel() == 0:
        return
    depth_block = triton.next_power_of_2(depth)
    words = max(16, min(triton.next_power_of_2(longest_row), _TILE_WORDS // depth_block))
    grid = (destination.numel() // depth, triton.cdiv(longest_row, words), addresses.numel())
    _move_rows_kernel[grid](
        addresses,
        row_words,
        row_strides,
        destination.contiguous(),
        source.contiguous(),
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
    destination_ptr,  # [bs * depth] int64
    source_ptr,  # [bs * depth] int64
    depth,
    WORD: tl.constexpr,
    DEPTH_BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    buffer = tl.program_id(2)
    move = tl.arange(0, DEPTH_BLOCK)
    destination = tl.load(destination_ptr + request * depth + move, mask=move < depth, other=0)
    source = tl.load(source_ptr + request * depth + move, mask=move < depth, other=0)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    moved = (destination != source)[:, None] & (word < tl.load(row_words_ptr + buffer))[None, :]
    base = tl.load(addresses_ptr + buffer).to(tl.pointer_type(WORD))
    stride = tl.load(row_strides_ptr + buffer)
    rows = tl.load(base + source[:, None] * stride + word[None, :], mask=moved)
    # The source of one row may be the destination of another, which another thread holds.
    tl.debug_barrier()
    tl.store(base + destination[:, None] * stride + word[None, :], rows, mask=moved)
