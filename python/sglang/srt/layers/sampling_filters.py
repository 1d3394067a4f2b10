"""Which tokens top-k, top-p and min-p keep together."""

from __future__ import annotations

import torch


def kept_by_filters(
    ranked: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> torch.Tensor:
    """[rows, tokens] bool: what all three filters keep, each measured on the whole distribution.

    Args:
        ranked: [rows, tokens] float, the probabilities from the largest down.
        top_ks: [rows, 1] int.
        top_ps: [rows, 1] float; a token stays while the mass before it is at most that.
        min_ps: [rows, 1] float, as a share of the largest probability.
    """
    rank = torch.arange(ranked.shape[1], device=ranked.device)
    mass_before = ranked.cumsum(dim=-1) - ranked
    return (rank < top_ks) & (mass_before <= top_ps) & (ranked >= ranked[:, :1] * min_ps)
