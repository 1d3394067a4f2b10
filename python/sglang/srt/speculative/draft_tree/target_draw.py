"""The target's own token at every node, drawn as plain decoding would draw it there.

The draw goes through the target's own sampler with every node as one row of the batch: the request's temperature and
filters, its seed with the node's position, and whatever sampling backend the server runs. So a draw has the
distribution of plain decoding, and with a seed it is plain decoding's token.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from sglang.srt.layers.logits_processor import LogitsProcessorOutput

if TYPE_CHECKING:
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

# The sampler works in place and sorts the vocabulary on some backends: several copies of its rows. Drawing in slices of
# at most so many logits bounds them, whatever the batch and the number of nodes.
MAX_LOGITS_PER_SLICE = 1 << 26
_PER_REQUEST = ("temperatures", "top_ps", "top_ks", "min_ps", "sampling_seed")


def draw_target_tokens(
    sampler: Sampler, logits: torch.Tensor, sampling_info: SamplingBatchInfo, positions: torch.Tensor
) -> torch.Tensor:
    """Draw the token that follows every node.

    Args:
        sampler: the target's sampler.
        logits: [bs * nodes, vocab] after all adjustments and masks; left as they are.
        sampling_info: one row per request, [bs]; custom logit processors must have been applied already.
        positions: [bs, nodes] int64, the position of each node's own token.

    Returns:
        [bs, nodes] int64. A greedy request (top_k 1) gets the argmax, also in a batch with sampled ones.
    """
    nodes = positions.shape[1]
    rows, vocab_size = logits.shape
    per_node = repeat_over_nodes(sampling_info, nodes)
    flat_positions = positions.reshape(-1)
    slice_rows = max(1, MAX_LOGITS_PER_SLICE // vocab_size)
    parts = []
    for start in range(0, rows, slice_rows):
        part = slice(start, min(start + slice_rows, rows))
        output = LogitsProcessorOutput(next_token_logits=logits[part].clone())
        # No log-probabilities here: those of the emitted tokens are computed after the walk, from `logits`.
        parts.append(sampler(output, _rows(per_node, part), False, [], [], flat_positions[part]).to(torch.int64))
    draws = torch.cat(parts) if len(parts) > 1 else parts[0]
    if sampling_info.is_any_greedy:
        draws = torch.where(per_node.top_ks <= 1, logits.argmax(dim=-1), draws)
    return draws.view(-1, nodes)


def repeat_over_nodes(sampling_info: SamplingBatchInfo, nodes: int) -> SamplingBatchInfo:
    """`sampling_info` with one row per node in place of one per request, request after request.

    It holds what a draw needs. What changes logits (penalties, bias, grammar, custom processors) belongs to the stage
    before, and the capture of sampling masks to the one after; both are left out.
    """
    repeated = {
        name: value.repeat_interleave(nodes, dim=0)
        for name in _PER_REQUEST
        if (value := getattr(sampling_info, name)) is not None
    }
    return dataclasses.replace(
        sampling_info,
        **repeated,
        grammars=None,
        grammar_mask=None,
        penalizer_orchestrator=None,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        logit_bias=None,
        has_custom_logit_processor=False,
        custom_logit_processor=None,
        custom_params=None,
        sampling_mask_batch_indices=None,
        sampling_support_logprobs_capture_indices=None,
    )


def _rows(sampling_info: SamplingBatchInfo, part: slice) -> SamplingBatchInfo:
    values = {name: getattr(sampling_info, name) for name in _PER_REQUEST}
    return dataclasses.replace(
        sampling_info, **{name: value[part] for name, value in values.items() if value is not None}
    )
