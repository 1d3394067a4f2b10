"""A candidate of the best-first build as one integer, so that the best candidate is a plain maximum.

    bit  63 ... 32     31 ... 27      26 ... 19        18 ... 0
         path score    31 - rank      255 - parent     cursor

The path score's float32 bits are mapped so that integers compare as the floats do. Greater is better: the greater path
score, then the smaller rank, then the smaller parent id. `cursor` is the candidate's place in the request's lattice; it
follows from the parent, so it never decides.
"""

from __future__ import annotations

import torch

MAX_BUDGET = 255
MAX_TOPK = 16
MAX_DEPTHS = 31

EMPTY = -(1 << 63)  # no candidate: below every key
SCORE_SHIFT = 32
RANK_SHIFT = 27
PARENT_SHIFT = 19
RANK_MASK = (1 << 5) - 1
PARENT_MASK = (1 << 8) - 1
CURSOR_MASK = (1 << 19) - 1
# Stands in for EMPTY where a key is unpacked: path score -inf, rank 0, parent 0, cursor 0.
FILLER = (-0x7F800001 << SCORE_SHIFT) | (RANK_MASK << RANK_SHIFT) | (PARENT_MASK << PARENT_SHIFT)


def ordered_bits(scores: torch.Tensor) -> torch.Tensor:
    """int64 in the range of int32 that compares as the float32 `scores` do, except that -0.0 is below 0.0."""
    bits = scores.view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)


def pack_key(score: torch.Tensor, rank: torch.Tensor, parent: torch.Tensor, cursor: torch.Tensor) -> torch.Tensor:
    """Keys int64 of candidates with path `score` float32; the others int64. EMPTY where the score is -inf or NaN.

    A path score is never -0.0: sums start at 0.0, and in float32 only two negative zeros add up to one.
    """
    tie = ((RANK_MASK - rank) << RANK_SHIFT) | ((PARENT_MASK - parent) << PARENT_SHIFT)
    key = (ordered_bits(score) << SCORE_SHIFT) | tie | cursor
    return torch.where(score > -torch.inf, key, EMPTY)


def unpack_key(key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Path score float32, rank, parent and cursor int64 of keys other than EMPTY."""
    bits = (key >> SCORE_SHIFT).to(torch.int32)
    score = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)
    rank = RANK_MASK - ((key >> RANK_SHIFT) & RANK_MASK)
    parent = PARENT_MASK - ((key >> PARENT_SHIFT) & PARENT_MASK)
    return score, rank, parent, key & CURSOR_MASK
