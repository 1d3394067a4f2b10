"""SGLANG_SIMULATE_ACC_LEN on trees: a set number of accepted tokens, whatever the draft is worth.

For measuring speed without a trained draft. The output is meaningless, as it is with upstream's chain.
"""

from __future__ import annotations

import math

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath
from sglang.kernels.draft_tree.tree_build import DraftTree
from sglang.srt.speculative.draft_tree.lattice import DraftLattice
from sglang.srt.speculative.spec_utils import (
    SIMULATE_ACC_LEN,
    SIMULATE_ACC_METHOD,
    SIMULATE_ACC_TOKEN_MODE,
    sample_simulated_acc_len,
)

# What upstream emits in its token mode "fixed".
FIXED_TOKEN = 100
# Off each log-probability, so that a path beside the certain one has a probability of nearly 0 and keeps its rank.
_RULED_OUT = 100.0


def forces_acceptance() -> bool:
    return SIMULATE_ACC_LEN > 0


def with_certain_path(lattice: DraftLattice, length: int | torch.Tensor | None = None) -> DraftLattice:
    """`lattice` with the path that is going to be accepted certain and the rest as good as ruled out.

    So a tree begins with that path, and what it expects to emit is what it will: the choice of a verify width reads it.

    Args:
        length: tokens that the round will emit; on the device, [1] integer, where a CUDA graph reads it. None before
            it is known: the longest that the environment variables allow.
    """
    depths = lattice.scores.shape[1]
    if length is None:
        length = math.ceil(SIMULATE_ACC_LEN) if SIMULATE_ACC_METHOD == "match-expected" else depths + 1
    certain = torch.arange(1, depths + 1, device=lattice.scores.device) < length  # the bonus token is no draft
    scores = lattice.scores - _RULED_OUT
    scores[:, :, 0].masked_fill_(certain, 0.0)
    pair_scores = lattice.pair_scores
    if pair_scores is not None:
        pair_scores = pair_scores - _RULED_OUT
        pair_scores[:, :, 0, 0].masked_fill_(certain[1:], 0.0)
    return DraftLattice(lattice.token_ids, scores, pair_scores)


class _Owed:
    """What whole numbers have left of the lengths so far; the same on all ranks, which a draw by chance need not be."""

    tokens = 0.0


def forced_length(depth: int) -> int:
    """Tokens that this round emits, 1 to `depth`, as the environment variables say.

    Where the mean is to be met ("match-expected"), lengths are the whole numbers around it, in turn.
    """
    if SIMULATE_ACC_METHOD != "match-expected":
        return sample_simulated_acc_len(SIMULATE_ACC_LEN, SIMULATE_ACC_METHOD, depth)
    _Owed.tokens += max(1.0, min(depth, SIMULATE_ACC_LEN))
    length = min(depth, int(_Owed.tokens + 1e-6))
    _Owed.tokens -= length
    return length


def forced_path(tree: DraftTree, draws: torch.Tensor, depth: int, length: int | torch.Tensor) -> AcceptedPath:
    """The first `length` nodes of each tree, which are a path in a tree of `with_certain_path`.

    Args:
        draws: [bs, nodes] int64, the target's token after every node; one of them is the bonus token.
        depth: columns of the result.
        length: tokens to emit, at most `depth`; on the device, [1] integer, where a CUDA graph reads it.
    """
    bs = len(draws)
    column = torch.arange(depth, device=draws.device).expand(bs, depth)
    accepted, last = column < length, column == length - 1
    emitted = torch.full_like(column, FIXED_TOKEN)
    if SIMULATE_ACC_TOKEN_MODE == "real-draft-token":
        following = tree.tokens[:, 1 : depth + 1]
        emitted[:, : following.shape[1]] = following
        emitted = torch.where(last, draws[:, :depth], emitted)
    emitted = emitted.masked_fill(~accepted, 0)
    return AcceptedPath(
        node_ids=column.masked_fill(~accepted, -1),
        length=accepted.sum(dim=1, dtype=torch.int32),
        tokens=emitted,
        bonus=emitted.masked_fill(~last, 0).sum(dim=1),
    )
