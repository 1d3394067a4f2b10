"""Penalty state that counts every emitted token, and what a verify round reads of it.

Upstream's penalizers keep, per request of the batch, what was emitted so far (`cumulated_*`, `len_output_tokens`), and
upstream filters and merges those rows with the batch. Upstream counts one token per request and step, read on the host.
A verify round emits several, and with overlap scheduling they exist only on the device when the next round is
scheduled; `count_tokens` takes them from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang.srt.sampling.penaltylib import (
    BatchedFrequencyPenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
)

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.sampling.penaltylib import BatchedPenalizerOrchestrator
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


class TokenPenalty(NamedTuple):
    """One kind of penalty: what a request asked for, and what its emitted tokens have earned."""

    strength: torch.Tensor  # [bs, 1] float32
    earned: torch.Tensor  # [bs, vocab] float32


class MinimumLength(NamedTuple):
    """min_new_tokens of each request."""

    minimum: torch.Tensor  # [bs, 1] int32
    emitted: torch.Tensor  # [bs, 1] int32
    stop_tokens: torch.Tensor  # [bs, vocab] float32, -inf at the tokens that end a request, else 0


class PenaltyState(NamedTuple):
    """The penalties of a batch; None for a kind that no request asked for."""

    frequency: TokenPenalty | None
    presence: TokenPenalty | None
    repetition: TokenPenalty | None
    minimum_length: MinimumLength | None


def penalty_state(orchestrator: BatchedPenalizerOrchestrator) -> PenaltyState | None:
    """The state of `orchestrator`, as references to its tensors; None when no request has a penalty."""
    if not orchestrator.is_required:
        return None
    frequency, presence, repetition, length = _penalizers(orchestrator)
    return PenaltyState(
        frequency and TokenPenalty(frequency.frequency_penalties, frequency.cumulated_frequency_penalties),
        presence and TokenPenalty(presence.presence_penalties, presence.cumulated_presence_penalties),
        repetition and TokenPenalty(repetition.repetition_penalties, repetition.cumulated_repetition_penalties),
        length and MinimumLength(length.min_new_tokens, length.len_output_tokens, length.stop_token_penalties),
    )


def count_tokens(orchestrator: BatchedPenalizerOrchestrator, tokens: torch.Tensor, lengths: torch.Tensor) -> None:
    """Count the first `lengths` [bs] of the emitted `tokens` [bs, width] int64 into the penalizers, in place.

    Leaves what counting them one after the other would leave. Nothing is read back to the host.
    """
    state = penalty_state(orchestrator)
    if state is None:
        return
    counted = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
    # What is not counted points at the first token: there a zero is added, or the value is set that it has anyway.
    index = torch.where(counted, tokens, tokens[:, :1])
    any_counted = lengths[:, None] > 0
    if state.frequency is not None:
        strength, earned = state.frequency
        earned.scatter_add_(1, index, torch.where(counted, strength, 0.0))
    for penalty in (state.presence, state.repetition):
        if penalty is not None:
            strength, earned = penalty
            earned.scatter_(1, index, torch.where(any_counted, strength, earned.gather(1, index)))
    if state.minimum_length is not None:
        state.minimum_length.emitted.add_(lengths[:, None].to(torch.int32))


def count_earlier_output(sampling_info: SamplingBatchInfo, batch: ScheduleBatch) -> None:
    """Count what the requests of a new batch emitted before it: a retracted request comes back with its output.

    The last token of a batch that goes straight to decoding is left to the first decode step, which counts it.
    """
    orchestrator = sampling_info.penalizer_orchestrator
    if not orchestrator.is_required:
        return
    pending = 0 if batch.forward_mode.is_extend() else 1
    outputs = [torch.tensor(req.output_ids[: len(req.output_ids) - pending], dtype=torch.int64) for req in batch.reqs]
    if not any(map(len, outputs)):
        return
    lengths = torch.tensor([len(output) for output in outputs], dtype=torch.int64)
    tokens = torch.nn.utils.rnn.pad_sequence(outputs, batch_first=True)
    count_tokens(orchestrator, tokens.to(batch.device), lengths.to(batch.device))


def _penalizers(orchestrator: BatchedPenalizerOrchestrator) -> list:
    """The frequency, presence, repetition and minimum-length penalizer, None for one that is not in use."""
    classes = (
        BatchedFrequencyPenalizer,
        BatchedPresencePenalizer,
        BatchedRepetitionPenalizer,
        BatchedMinNewTokensPenalizer,
    )
    found = (orchestrator.penalizers.get(each) for each in classes)
    return [each if each is not None and each.is_prepared() else None for each in found]
