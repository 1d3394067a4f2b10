"""Logits to the candidates of each depth: the best tokens and their log-probabilities."""

from __future__ import annotations

import torch

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton
from sglang.kernels.draft_tree.path_key import MAX_TOPK, ordered_bits

_ID_MASK = (1 << 32) - 1


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
    # Adding zero makes -0.0 equal to 0.0.
    values = logits.float() + 0.0
    ids = torch.arange(logits.shape[1], device=logits.device)
    keys = ((ordered_bits(values) << 32) | (_ID_MASK - ids)).topk(topk, dim=1).values
    best = _ID_MASK - (keys & _ID_MASK)
    return best, values.gather(1, best) - values.logsumexp(dim=1, keepdim=True)
