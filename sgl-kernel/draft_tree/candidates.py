"""Logits to the candidates of each depth: the best tokens and their log-probabilities."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton
from sglang.kernels.draft_tree.tree_build import MAX_TOPK

_ID_MASK = (1 << 32) - 1
_PART = 128  # tokens


def top_candidates(
    logits: torch.Tensor, topk: int, *, backend: Backend | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids int64 and log-probabilities float32 of the `topk` greatest logits, [rows, topk] each, descending.

    Of equal logits the smaller id comes first, which torch.topk alone does not promise. Log-probabilities are taken in
    float32 over the whole vocabulary.

    Args:
        logits: [rows, vocab] of a floating dtype.
        topk: 1 to 16, at most vocab.
        backend: see dispatch.py.
    """
    if not 1 <= topk <= min(MAX_TOPK, logits.shape[1]):
        raise ValueError(f"top_candidates: topk is {topk}; it must be 1 to {MAX_TOPK} and fit the vocabulary")
    if not uses_triton(logits.device, backend):
        return _top_candidates_torch(logits, topk)
    from sglang.kernels.draft_tree.candidates_triton import launch_top_candidates

    shape = (logits.shape[0], topk)
    ids = torch.empty(shape, dtype=torch.int64, device=logits.device)
    log_probs = torch.empty(shape, dtype=torch.float32, device=logits.device)
    launch_top_candidates(ids, log_probs, logits, topk)
    return ids, log_probs


def _top_candidates_torch(logits: torch.Tensor, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, vocab = logits.shape
    # Adding zero makes -0.0 equal to 0.0.
    values = logits.float() + 0.0
    # The best tokens are in the parts with the best maxima, of equal ones the first: any other part has at least as
    # many better tokens as there are candidates. So the vocabulary is read once, and only a few parts are sorted.
    padded = pad(values, (0, -vocab % _PART), value=-torch.inf).view(rows, -(-vocab // _PART), _PART)
    maxima = padded.amax(dim=2)
    part = _first_best(maxima, torch.arange(maxima.shape[1], device=logits.device), min(topk, maxima.shape[1]))
    ids = part[:, :, None] * _PART + torch.arange(_PART, device=logits.device)
    near = padded.gather(1, part[:, :, None].expand(ids.shape)).flatten(1)
    best = _first_best(near, ids.flatten(1), topk)
    return best, values.gather(1, best) - values.logsumexp(dim=1, keepdim=True)


def _first_best(values: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    """The ids of the `count` greatest values of each row, of equal values the smaller id first."""
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # compares as the floats do
    keys = (ordered.to(torch.int64) << 32) | (_ID_MASK - ids)
    return _ID_MASK - (keys.topk(count, dim=1).values & _ID_MASK)
