"""The smallest probability that the filters keep, one program per row; see kept_probs.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 2048
_PIVOTS = 8  # values that one pass over the row tries: each pass leaves an eighth of the interval


def launch_kept_probs(
    kept: torch.Tensor, probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> None:
    """Fill `kept` [rows, vocab] from `probs` [rows, vocab], whose rows may have gaps behind them."""
    rows, vocab = probs.shape
    if rows == 0:
        return
    probs = probs if probs.stride(1) == 1 else probs.contiguous()
    _kept_probs_kernel[(rows,)](
        kept,
        probs,
        top_ks.contiguous(),
        top_ps.contiguous(),
        min_ps.contiguous(),
        probs.stride(0),
        vocab,
        BLOCK=min(_BLOCK, triton.next_power_of_2(vocab)),
        PIVOTS=_PIVOTS,
        num_warps=8,
    )


@triton.jit
def _kept_probs_kernel(
    kept_ptr,  # [rows, vocab]
    probs_ptr,  # [rows, vocab]
    top_ks_ptr,  # [rows] int
    top_ps_ptr,  # [rows] float, as the next one
    min_ps_ptr,
    probs_stride,  # from one row to the next
    vocab,
    BLOCK: tl.constexpr,
    PIVOTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    probs_ptr += row * probs_stride
    kept_ptr += row * vocab
    top_k = tl.minimum(tl.load(top_ks_ptr + row), vocab)
    top_p = tl.load(top_ps_ptr + row).to(tl.float32)
    top_p = tl.where(top_p >= 1.0, float("inf"), top_p)
    cuts = (top_k < vocab) | (top_p < 1.0)
    min_p = tl.load(min_ps_ptr + row).to(tl.float32)
    token = tl.arange(0, BLOCK)

    largest = 0.0
    for start in range(0, vocab, BLOCK):
        probs = tl.load(probs_ptr + start + token, mask=start + token < vocab, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(probs, 0))

    # Floats that are not negative are ordered as their bits. Of the values between `low` and `high` the smallest is
    # wanted above which there are fewer than top_k tokens, with no more mass than top_p. `high` is such a value.
    high = largest.to(tl.int32, bitcast=True).to(tl.int64)
    low = tl.where(cuts & (top_k > 1), -1, high - 1).to(tl.int64)
    count_above = 0
    mass_above = 0.0
    step = tl.arange(0, PIVOTS) + 1
    while high - low > 1:
        pivots = (low + (high - low) * step // PIVOTS).to(tl.int32)
        counts = tl.zeros([PIVOTS], dtype=tl.int32)
        masses = tl.zeros([PIVOTS], dtype=tl.float32)
        for start in range(0, vocab, BLOCK):
            probs = tl.load(probs_ptr + start + token, mask=start + token < vocab, other=0.0).to(tl.float32)
            above = probs.to(tl.int32, bitcast=True)[None, :] > pivots[:, None]
            counts += tl.sum(above.to(tl.int32), 1)
            masses += tl.sum(tl.where(above, probs[None, :], 0.0), 1)
        few = ((counts < top_k) & (masses <= top_p)) | (step == PIVOTS)
        found = tl.min(tl.where(few, step, PIVOTS), 0)
        here = step == found
        count_above = tl.sum(tl.where(here, counts, 0), 0)
        mass_above = tl.sum(tl.where(here, masses, 0.0), 0)
        lower = low + (high - low) * (found - 1) // PIVOTS
        high = tl.sum(tl.where(here, pivots, 0), 0).to(tl.int64)
        low = lower

    # Of the tokens with that very probability the first few.
    cut = tl.where(cuts, high, -1).to(tl.int32)
    value = high.to(tl.int32).to(tl.float32, bitcast=True)
    by_mass = tl.floor((top_p - mass_above) / tl.maximum(value, 1e-37)) + 1.0
    room = tl.minimum((top_k - count_above).to(tl.float32), by_mass)
    least = largest * min_p
    before = 0
    for start in range(0, vocab, BLOCK):
        inside = start + token < vocab
        stored = tl.load(probs_ptr + start + token, mask=inside, other=0.0)
        probs = stored.to(tl.float32)
        bits = probs.to(tl.int32, bitcast=True)
        equal = ((bits == cut) & inside).to(tl.int32)
        order = before + tl.cumsum(equal, 0)  # from 1
        stays = ((bits > cut) | ((equal > 0) & (order.to(tl.float32) <= room))) & (probs >= least)
        tl.store(kept_ptr + start + token, tl.where(stays, stored, 0.0), mask=inside)
        before += tl.sum(equal, 0)
