"""Attention of a verify in two launches, or in one where the prefix is not split; see verify_attention.py."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix

_MOST_SPLITS = 64
_MERGE_COLUMNS = 128  # of the values that one program of the merge holds for all splits
# Programs for each multiprocessor before the prefix is no longer split: enough that uneven requests even out.
_WAVES = 2
_WIDE_SHARED_BYTES = 160 * 1024  # blocks may have so much on Hopper and on B200, and not on SM89 and SM120
_LOG2_E = tl.constexpr(1.4426950408889634)
_VISIBLE = {"all": 0, "earlier": 1, "tree": 2}


def launch_verify_attention(
    out: torch.Tensor, new: NewRows, prefix: Prefix, mask: Mask, scale: float, logit_cap: float
) -> None:
    """See verify_attention. Neither the splits nor anything else here depends on lengths that only the device knows."""
    rows, heads, head_dim = new.queries.shape
    value_dim, kv_heads = new.values.shape[2], new.keys.shape[1]
    bs = new.start.numel() - 1
    if rows == 0 or bs == 0:
        return
    group = heads // kv_heads
    multiprocessors, shared_bytes = _device(out.device)
    block_d, block_rest = _head_blocks(head_dim)
    tile = _tile(new.most * group, head_dim * new.queries.element_size(), shared_bytes)
    row_blocks = triton.cdiv(new.most * group, tile["BLOCK_M"])
    programs = bs * kv_heads * row_blocks
    splits = max(1, min(_MOST_SPLITS, _WAVES * multiprocessors // programs))
    shape = (rows, heads, splits)
    parts = out if splits == 1 else torch.empty((*shape, value_dim), dtype=torch.float32, device=out.device)
    sums = out if splits == 1 else torch.empty(shape, dtype=torch.float32, device=out.device)
    _verify_kernel[(splits, kv_heads * row_blocks, bs)](
        out,
        parts,
        sums,
        new.queries,
        new.keys,
        new.values,
        prefix.keys,
        prefix.values,
        new.start,
        prefix.start,
        prefix.slots,
        # Triton loads a bool as one bit of a byte.
        mask.cells.view(torch.uint8) if mask.cells is not None else None,
        mask.start,
        splits,
        scale,
        prefix.key_scale,
        prefix.value_scale,
        new.queries.stride(0),
        new.queries.stride(1),
        new.keys.stride(0),
        new.keys.stride(1),
        new.values.stride(0),
        new.values.stride(1),
        prefix.keys.stride(0),
        prefix.keys.stride(1),
        prefix.values.stride(0),
        prefix.values.stride(1),
        out.stride(0),
        out.stride(1),
        HEADS=heads,
        GROUP=group,
        SPLIT=splits > 1,
        VISIBLE=_VISIBLE[mask.visible],
        LOGIT_CAP=logit_cap,
        HEAD_DIM=head_dim,
        VALUE_DIM=value_dim,
        BLOCK_D=block_d,
        BLOCK_REST=block_rest,
        BLOCK_V=triton.next_power_of_2(value_dim),
        VALUES_IN_KEYS=value_dim == block_d and _begin_alike(prefix.keys, prefix.values),
        **tile,
    )
    if splits > 1:
        columns = min(_MERGE_COLUMNS, triton.next_power_of_2(value_dim))
        _merge_kernel[(rows * heads, triton.cdiv(value_dim, columns))](
            out,
            parts,
            sums,
            splits,
            out.stride(0),
            out.stride(1),
            HEADS=heads,
            SPLIT_BLOCK=triton.next_power_of_2(splits),
            VALUE_DIM=value_dim,
            COLUMNS=columns,
        )


@functools.lru_cache
def _device(device: torch.device) -> tuple[int, int]:
    """Multiprocessors, and bytes of shared memory that a block may have; without a GPU those of SM120's."""
    if device.type != "cuda":
        return 188, 101376
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_block_optin", 101376)


def _head_blocks(head_dim: int) -> tuple[int, int]:
    """The head in blocks of a power of two: one, or for latent attention (512 + 64) two."""
    whole = triton.next_power_of_2(head_dim)
    if whole > 256 and head_dim > whole // 2 and whole // 2 + 64 >= head_dim:
        return whole // 2, triton.next_power_of_2(head_dim - whole // 2)
    return whole, 0


def _tile(rows: int, head_bytes: int, shared_bytes: int) -> dict[str, int]:
    """Tiles whose registers do not spill, by ``cuobjdump --dump-resource-usage``, and that fit the shared memory."""
    block_m = min(64 if head_bytes <= 512 else 32, max(16, triton.next_power_of_2(rows)))
    if head_bytes <= 128:
        return {"BLOCK_M": block_m, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}
    if head_bytes <= 256:
        return {"BLOCK_M": block_m, "BLOCK_N": 64, "num_warps": 8 if block_m == 64 else 4, "num_stages": 2}
    if head_bytes <= 512:
        return {"BLOCK_M": block_m, "BLOCK_N": 32, "num_warps": 8, "num_stages": 2}
    if shared_bytes < _WIDE_SHARED_BYTES:
        return {"BLOCK_M": block_m, "BLOCK_N": 16, "num_warps": 8, "num_stages": 2}
    return {"BLOCK_M": block_m, "BLOCK_N": 32, "num_warps": 8, "num_stages": 1}


def _begin_alike(keys: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether values are the first columns of keys, as latent attention keeps them, so that keys are loaded alone."""
    same = keys.data_ptr() == values.data_ptr() and keys.dtype == values.dtype
    return same and keys.stride()[:2] == values.stride()[:2]


@triton.jit(do_not_specialize=["splits"])
def _verify_kernel(
    out_ptr,  # [rows, heads, value_dim]
    parts_ptr,  # [rows, heads, splits, value_dim] float32, as the next one read where there are several splits
    sums_ptr,  # [rows, heads, splits] float32, log2 of the sum of 2^logits
    queries_ptr,  # [rows, heads, head_dim]
    keys_ptr,  # [rows, kv_heads, head_dim]
    values_ptr,
    pool_keys_ptr,  # [slots, kv_heads, head_dim]
    pool_values_ptr,
    start_ptr,  # [bs + 1] first rows
    prefix_start_ptr,  # [bs + 1] first tokens in slots
    slots_ptr,  # [tokens] int64
    cells_ptr,  # mask of trees
    cells_start_ptr,  # [bs + 1] int64
    splits,
    scale,
    key_scale,
    value_scale,
    query_row,  # strides, as all of the following
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    pool_key_slot,
    pool_key_head,
    pool_value_slot,
    pool_value_head,
    out_row,
    out_head,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
    VISIBLE: tl.constexpr,
    LOGIT_CAP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    BLOCK_V: tl.constexpr,
    VALUES_IN_KEYS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    split = tl.program_id(0)
    kv_head = tl.program_id(1) % (HEADS // GROUP)
    request = tl.program_id(2)
    first = tl.load(start_ptr + request).to(tl.int64)
    rows = (tl.load(start_ptr + request + 1) - first).to(tl.int32)
    place = (tl.program_id(1) // (HEADS // GROUP)) * BLOCK_M + tl.arange(0, BLOCK_M)
    node = place // GROUP
    head = kv_head * GROUP + place % GROUP
    inside = node < rows
    token = tl.load(prefix_start_ptr + request).to(tl.int64)
    prefix = (tl.load(prefix_start_ptr + request + 1) - token).to(tl.int32)

    number = tl.arange(0, BLOCK_D)
    within = number < HEAD_DIM
    query_ptr = queries_ptr + (first + node)[:, None] * query_row + head[:, None] * query_head
    query = tl.load(query_ptr + number[None, :], mask=inside[:, None] & within[None, :], other=0.0)
    if BLOCK_REST > 0:
        rest = BLOCK_D + tl.arange(0, BLOCK_REST)
        within_rest = rest < HEAD_DIM
        query_rest = tl.load(query_ptr + rest[None, :], mask=inside[:, None] & within_rest[None, :], other=0.0)
    column = tl.arange(0, BLOCK_V)
    within_values = column < VALUE_DIM

    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    mixed = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    share = tl.cdiv(tl.cdiv(prefix, splits), BLOCK_N) * BLOCK_N
    last = tl.minimum((split + 1) * share, prefix)
    for begin in range(split * share, last, BLOCK_N):
        at = begin + tl.arange(0, BLOCK_N)
        live = at < last
        slot = tl.load(slots_ptr + token + at, mask=live, other=0).to(tl.int64)
        key_ptr = pool_keys_ptr + slot[:, None] * pool_key_slot + kv_head * pool_key_head
        key = tl.load(key_ptr + number[None, :], mask=live[:, None] & within[None, :], other=0.0).to(query.dtype)
        logits = tl.dot(query, tl.trans(key))
        if BLOCK_REST > 0:
            more = tl.load(key_ptr + rest[None, :], mask=live[:, None] & within_rest[None, :], other=0.0)
            logits += tl.dot(query_rest, tl.trans(more.to(query.dtype)))
        logits = tl.where(live[None, :], _scaled(logits, scale * key_scale, LOGIT_CAP), float("-inf"))
        if VALUES_IN_KEYS:
            value = key
        else:
            value_ptr = pool_values_ptr + slot[:, None] * pool_value_slot + kv_head * pool_value_head
            value = tl.load(value_ptr + column[None, :], mask=live[:, None] & within_values[None, :], other=0.0)
            value = value.to(query.dtype)
        # Every block holds a token, and every row sees it: `higher` is finite.
        higher = tl.maximum(most, tl.max(logits, 1))
        fade = tl.exp2(most - higher)
        weights = tl.exp2(logits - higher[:, None])
        total = total * fade + tl.sum(weights, 1)
        mixed = mixed * fade[:, None] + tl.dot(weights.to(query.dtype), value) * value_scale
        most = higher

    if split == splits - 1:
        for begin in range(0, rows, BLOCK_N):
            at = begin + tl.arange(0, BLOCK_N)
            live = at < rows
            key_ptr = keys_ptr + (first + at)[:, None] * key_row + kv_head * key_head
            key = tl.load(key_ptr + number[None, :], mask=live[:, None] & within[None, :], other=0.0)
            logits = tl.dot(query, tl.trans(key))
            if BLOCK_REST > 0:
                more = tl.load(key_ptr + rest[None, :], mask=live[:, None] & within_rest[None, :], other=0.0)
                logits += tl.dot(query_rest, tl.trans(more))
            seen = inside[:, None] & live[None, :]
            if VISIBLE == 1:
                seen &= at[None, :] <= node[:, None]
            if VISIBLE == 2:
                cell = tl.load(cells_start_ptr + request) + prefix + node.to(tl.int64)[:, None] * (prefix + rows)
                seen &= tl.load(cells_ptr + cell + at[None, :], mask=seen, other=0) != 0
            logits = tl.where(seen, _scaled(logits, scale, LOGIT_CAP), float("-inf"))
            value_ptr = values_ptr + (first + at)[:, None] * value_row + kv_head * value_head
            value = tl.load(value_ptr + column[None, :], mask=live[:, None] & within_values[None, :], other=0.0)
            higher = tl.maximum(most, tl.max(logits, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)  # of rows that have seen nothing yet
            fade = tl.exp2(most - base)
            weights = tl.exp2(logits - base[:, None])
            total = total * fade + tl.sum(weights, 1)
            mixed = mixed * fade[:, None] + tl.dot(weights.to(query.dtype), value)
            most = higher

    empty = total == 0.0
    mixed = mixed / tl.where(empty, 1.0, total)[:, None]
    row = (first + node).to(tl.int64)
    stored = inside[:, None] & within_values[None, :]
    if not SPLIT:
        where = out_ptr + row[:, None] * out_row + head[:, None] * out_head + column[None, :]
        tl.store(where, mixed.to(out_ptr.dtype.element_ty), mask=stored)
    else:
        part = (row * HEADS + head) * splits + split
        tl.store(sums_ptr + part, tl.where(empty, float("-inf"), most + tl.log2(total)), mask=inside)
        tl.store(parts_ptr + part[:, None] * VALUE_DIM + column[None, :], mixed, mask=stored & ~empty[:, None])


@triton.jit
def _scaled(logits, scale, LOGIT_CAP: tl.constexpr):
    """Logits to the base 2, capped if LOGIT_CAP is positive; tanh x is 2 sigmoid 2x - 1."""
    logits *= scale
    if LOGIT_CAP > 0:
        logits = LOGIT_CAP * (2 * tl.sigmoid(2 * logits / LOGIT_CAP) - 1)
    return logits * _LOG2_E


@triton.jit(do_not_specialize=["splits"])
def _merge_kernel(
    out_ptr,  # [rows, heads, value_dim]
    parts_ptr,  # [rows, heads, splits, value_dim] float32, not written where the sum is -inf
    sums_ptr,  # [rows, heads, splits] float32
    splits,
    out_row,  # strides
    out_head,
    HEADS: tl.constexpr,
    SPLIT_BLOCK: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLIT_BLOCK)
    sums = tl.load(sums_ptr + place * splits + split, mask=split < splits, other=float("-inf"))
    some = sums > float("-inf")
    most = tl.max(sums, 0)
    weights = tl.where(some, tl.exp2(sums - tl.where(most > float("-inf"), most, 0.0)), 0.0)
    weights /= tl.maximum(tl.sum(weights, 0), 1e-30)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < VALUE_DIM
    part_ptr = parts_ptr + (place * splits + split)[:, None] * VALUE_DIM + column[None, :]
    parts = tl.load(part_ptr, mask=some[:, None] & inside[None, :], other=0.0)
    mixed = tl.sum(parts * weights[:, None], 0)
    where = out_ptr + (place // HEADS) * out_row + (place % HEADS) * out_head + column
    tl.store(where, mixed.to(out_ptr.dtype.element_ty), mask=inside)
