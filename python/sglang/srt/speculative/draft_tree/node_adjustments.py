"""Penalties, minimum length and logit bias at every node: the logits that plain decoding would sample from there.

Plain decoding at a node has emitted, on top of what the round's state counts (every token up to the root), the tokens
on the path from below the root down to the node itself. A penalty therefore differs from node to node, but only at
tokens that are in the tree: the state is added to all nodes alike, and the few entries of tree tokens are computed
again, each with the number of times its token stands on that path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.tree_layout import ancestor_mask, node_depths
from sglang.srt.sampling.penaltylib.repetition_penalty import apply_scaling_penalties

if TYPE_CHECKING:
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
    from sglang.srt.speculative.draft_tree.penalty_counts import MinimumLength, PenaltyState, TokenPenalty


def has_node_adjustments(sampling_info: SamplingBatchInfo) -> bool:
    """Whether `adjust_node_logits` would change anything; known to the host without a look at the device."""
    history = sampling_info.emitted_history
    return (history is not None and history.penalties is not None) or sampling_info.logit_bias is not None


def adjust_node_logits(
    logits: torch.Tensor, tokens: torch.Tensor, parents: torch.Tensor, sampling_info: SamplingBatchInfo
) -> None:
    """Apply the penalties, the minimum length and the bias of every request to the logits of its nodes, in place.

    Args:
        logits: [bs * nodes, vocab] of any float type.
        tokens: [bs, nodes] int64.
        parents: [bs, nodes] int64.
        sampling_info: one row per request, made by `emitted_tokens.forward_sampling_info`.

    Grammar masks and custom logit processors come after this.
    """
    per_node = logits.view(*tokens.shape, -1)
    history = sampling_info.emitted_history
    if history is not None and history.penalties is not None:
        apply_penalties(per_node, tokens, ancestor_mask(parents), history.penalties)
    if sampling_info.logit_bias is not None:
        per_node.add_(sampling_info.logit_bias[:, None, :])


def apply_penalties(logits: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor, state: PenaltyState) -> None:
    """Apply `state` to `logits` [bs, nodes, vocab] in place; `mask` is the ancestor mask of the trees."""
    on_path = path_counts(tokens, mask)
    # Taken before the state is added, so that each entry is computed once from the model's own logit.
    index = tokens[:, None, :].expand_as(on_path)
    entries = logits.gather(2, index).to(torch.float32)

    added = [penalty for penalty in (state.frequency, state.presence) if penalty is not None]
    if added:
        logits.sub_(sum(penalty.earned for penalty in added)[:, None, :])
    if state.frequency is not None:
        entries -= _earned_by(tokens, state.frequency) + state.frequency.strength[:, :, None] * on_path
    if state.presence is not None:
        entries -= _set_by(tokens, on_path, state.presence)
    if state.repetition is not None:
        apply_scaling_penalties(logits, state.repetition.earned[:, None, :].expand_as(logits))
        apply_scaling_penalties(entries, _set_by(tokens, on_path, state.repetition))
    # A token that is not on a node's path has the count 0, so writing all tree tokens at all nodes is right.
    logits.scatter_(2, index, entries.to(logits.dtype))

    if state.minimum_length is not None:
        _hold_back_stop_tokens(logits, node_depths(mask), state.minimum_length)


def path_counts(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[bs, nodes, nodes] float32: how often the column's token stands on the path to the row's node, root excluded."""
    below_root = mask.to(torch.float32)
    below_root[:, :, 0] = 0.0
    same_token = (tokens[:, :, None] == tokens[:, None, :]).to(torch.float32)
    return below_root @ same_token


def _earned_by(tokens: torch.Tensor, penalty: TokenPenalty) -> torch.Tensor:
    """What each tree token has earned up to the root: [bs, 1, nodes]."""
    return penalty.earned.gather(1, tokens)[:, None, :]


def _set_by(tokens: torch.Tensor, on_path: torch.Tensor, penalty: TokenPenalty) -> torch.Tensor:
    """The penalty of each tree token at each node, [bs, nodes, nodes], for a kind that one occurrence sets."""
    return torch.where(on_path > 0, penalty.strength[:, :, None], _earned_by(tokens, penalty))


def _hold_back_stop_tokens(logits: torch.Tensor, depths: torch.Tensor, length: MinimumLength) -> None:
    too_short = length.emitted + depths < length.minimum
    stops = length.stop_tokens.isneginf()
    logits.masked_fill_(too_short[:, :, None] & stops[:, None, :], float("-inf"))
