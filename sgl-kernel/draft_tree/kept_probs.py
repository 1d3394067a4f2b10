"""Top-k, top-p and min-p: the probabilities that a request may draw from.

A verify draws at every node, so the rows are requests times nodes, and sorting the vocabulary in each of them would
take longer than the target's forward. The kernel looks for the smallest probability that is kept instead: what lies
above a value in number and in mass falls as the value rises, so a search over the bits of a float finds it.
"""

from __future__ import annotations

import torch

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton

NEAR = 1024


def kept_probs(
    probs: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
    min_ps: torch.Tensor,
    *,
    backend: Backend | None = None,
) -> torch.Tensor:
    """[rows, vocab]: `probs` of the tokens that all three filters keep, 0 elsewhere; not scaled to a sum of one.

    Args:
        probs: [rows, vocab] of a floating dtype, each row with a sum of one; left as they are.
        top_ks: [rows] int, at least 1; the size of the vocabulary and more keeps all.
        top_ps: [rows] float; a token stays while the mass of those before it is at most that. 1 and more keeps all.
        min_ps: [rows] float, as a share of the row's largest probability; 0 keeps all.
        backend: see dispatch.py.

    Each filter is measured on the whole row. Of equal probabilities the lower token comes first.
    """
    if not uses_triton(probs.device, backend):
        return in_place_of_ranks(*filtered_by_rank(probs, top_ks, top_ps, min_ps))
    from sglang.kernels.draft_tree.kept_probs_triton import launch_kept_probs

    kept = torch.empty(probs.shape, dtype=probs.dtype, device=probs.device)
    launch_kept_probs(kept, probs, top_ks, top_ps, min_ps)
    return kept


def filtered_by_rank(
    probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments of `kept_probs`; its probabilities from the largest down, and the tokens that they belong to.

    Returns:
        Two [rows, vocab] tensors, of the dtype of `probs` and int64.
    """
    ranked, token_ids = probs.sort(dim=-1, descending=True, stable=True)
    # In float32 the mass before a token may come to more than 1.
    top_ps = top_ps.masked_fill(top_ps >= 1, torch.inf)
    kept = kept_by_filters(ranked, top_ks.view(-1, 1), top_ps.view(-1, 1), min_ps.view(-1, 1))
    return ranked.masked_fill(~kept, 0.0), token_ids


def in_place_of_ranks(ranked: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """[rows, vocab]: what `filtered_by_rank` returns, in the order of tokens."""
    return torch.zeros_like(ranked).scatter_(1, token_ids, ranked)


def filtered_near(
    probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`filtered_by_rank` of the `NEAR` largest probabilities of each row, where no row keeps more than those.

    None otherwise. It reads that back to the host, so it is for the CPU, where sorting a vocabulary at every node takes
    as long as the verify of a small model.
    """
    if probs.shape[1] <= NEAR:
        return None
    token_ids = probs.topk(NEAR, dim=-1, sorted=False).indices.sort(dim=-1).values
    ranked, order = filtered_by_rank(probs.gather(1, token_ids), top_ks, top_ps, min_ps)
    # The last one is dropped, so all that equal the last kept one are among them.
    return None if (ranked[:, -1] > 0).any() else (ranked, token_ids.gather(1, order))


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
