"""Top candidates of logits in two launches: parts of the vocabulary, then their merge; see candidates.py.

A logit and its token are one integer that compares as the reference sorts: the logit's ordered bits above, and below
them the token's id counted from the top, so that the smaller id is the greater integer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_PART = 4096  # tokens per program
_EMPTY = tl.constexpr(-(1 << 63))
_ID_MASK = tl.constexpr((1 << 32) - 1)


def launch_top_candidates(ids: torch.Tensor, log_probs: torch.Tensor, logits: torch.Tensor, topk: int) -> None:
    """Fill `ids` int64 and `log_probs` float32, [rows, topk], from `logits` [rows, vocab]."""
    rows, vocab = logits.shape
    if rows == 0:
        return
    parts = triton.cdiv(vocab, _PART)
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    keys = torch.empty(rows, parts, topk, dtype=torch.int64, device=logits.device)
    maxima, sums = torch.empty(2, rows, parts, dtype=torch.float32, device=logits.device)
    _part_kernel[(rows, parts)](keys, maxima, sums, logits, logits.stride(0), vocab, TOPK=topk, PART=_PART, num_warps=8)
    _merge_kernel[(rows,)](
        ids,
        log_probs,
        keys,
        maxima,
        sums,
        parts,
        TOPK=topk,
        PARTS=triton.next_power_of_2(parts),
        BLOCK=triton.next_power_of_2(parts * topk),
        num_warps=4,
    )


@triton.jit
def _part_kernel(
    keys_ptr,  # [rows, parts, TOPK] int64
    maxima_ptr,  # [rows, parts] float32
    sums_ptr,  # [rows, parts] float32, of exp(logit - maximum)
    logits_ptr,  # [rows, vocab]
    row_stride,
    vocab,
    TOPK: tl.constexpr,
    PART: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    token = part * PART + tl.arange(0, PART)
    inside = token < vocab
    logits = tl.load(logits_ptr + row * row_stride + token, mask=inside, other=float("-inf")).to(tl.float32)
    place = row * tl.num_programs(1) + part
    maximum = tl.max(logits, 0)
    # A part without a finite logit adds nothing.
    base = tl.where(maximum > float("-inf"), maximum, 0.0)
    tl.store(maxima_ptr + place, maximum)
    tl.store(sums_ptr + place, tl.sum(tl.exp(logits - base), 0))

    logits = tl.where(logits == 0.0, 0.0, logits)
    bits = logits.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = (bits.to(tl.int64) << 32) | (token.to(tl.int64) ^ _ID_MASK)
    key = tl.where(inside, key, _EMPTY)
    for rank in range(TOPK):
        best = tl.max(key, 0)
        tl.store(keys_ptr + place * TOPK + rank, best)
        key = tl.where(key == best, _EMPTY, key)


@triton.jit
def _merge_kernel(
    ids_ptr,  # [rows, TOPK] int64
    log_probs_ptr,  # [rows, TOPK] float32
    keys_ptr,  # [rows, parts, TOPK] int64
    maxima_ptr,  # [rows, parts] float32
    sums_ptr,  # [rows, parts] float32
    parts,
    TOPK: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    maxima = tl.load(maxima_ptr + row * parts + part, mask=part < parts, other=float("-inf"))
    sums = tl.load(sums_ptr + row * parts + part, mask=part < parts, other=0.0)
    maximum = tl.max(maxima, 0)
    base = tl.where(maximum > float("-inf"), maximum, 0.0)
    log_sum = base + tl.log(tl.sum(sums * tl.exp(maxima - base), 0))

    slot = tl.arange(0, BLOCK)
    key = tl.load(keys_ptr + row * parts * TOPK + slot, mask=slot < parts * TOPK, other=_EMPTY)
    for rank in range(TOPK):
        best = tl.max(key, 0)
        bits = (best >> 32).to(tl.int32)
        logit = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        tl.store(ids_ptr + row * TOPK + rank, (best & _ID_MASK) ^ _ID_MASK)
        tl.store(log_probs_ptr + row * TOPK + rank, logit - log_sum)
        key = tl.where(key == best, _EMPTY, key)
