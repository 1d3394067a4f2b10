"""The tokens that each request's last forward emitted, kept on the device from one round to the next.

Rows are the request's rows of the request-to-token table, so they follow a request through filter and merge of its
batch. Written and read on the forward stream alone, in its order. A row is meaningful from the first forward of its
request on; a request that has none of the features that need it may leave its row stale.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang.srt.speculative.draft_tree.penalty_counts import PenaltyState, count_tokens, penalty_state

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.sampling.penaltylib import BatchedPenalizerOrchestrator
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


class EmittedHistory(NamedTuple):
    """What a round knows of the tokens before it; the field `emitted_history` of the round's SamplingBatchInfo."""

    penalties: PenaltyState | None  # counts every token up to the root
    tokens: torch.Tensor  # [bs, width] int64, emitted by the last forward; the root is the last of them
    lengths: torch.Tensor  # [bs] int64, how many of them count


class EmittedTokens:
    """One row per row of a request-to-token table."""

    def __init__(self, rows: int, width: int, device: torch.device | str) -> None:
        self.tokens = torch.zeros((rows, width), dtype=torch.int64, device=device)
        self.lengths = torch.zeros((rows,), dtype=torch.int64, device=device)
        self.counted = torch.zeros((rows,), dtype=torch.bool, device=device)

    def store(self, rows: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor | None) -> None:
        """Keep `tokens` [bs, up to width] of which `lengths` [bs] count, None for all of them."""
        width = tokens.shape[1]
        self.tokens[rows, :width] = tokens.to(torch.int64)
        self.lengths[rows] = width if lengths is None else lengths.to(torch.int64)
        self.counted[rows] = False

    def take(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens [bs, width] of `rows` [bs], how many count, and how many were not taken before: each is taken once."""
        lengths = self.lengths[rows]
        new = lengths.masked_fill(self.counted[rows], 0)
        self.counted[rows] = True
        return self.tokens[rows], lengths, new


_kept: weakref.WeakKeyDictionary[ReqToTokenPool, EmittedTokens] = weakref.WeakKeyDictionary()


def emitted_tokens(batch: ScheduleBatch, width: int = 1) -> EmittedTokens:
    """The store for the table of `batch`, at least `width` tokens wide."""
    pool = batch.req_to_token_pool
    store = _kept.get(pool)
    if store is None or store.tokens.shape[1] < width:
        wider = EmittedTokens(pool.req_to_token.shape[0], width, pool.req_to_token.device)
        if store is not None:
            wider.tokens[:, : store.tokens.shape[1]] = store.tokens
            wider.lengths, wider.counted = store.lengths, store.counted
        store = _kept[pool] = wider
    return store


def needs_history(sampling_info: SamplingBatchInfo | None) -> bool:
    """Whether a round with this information, made by `forward_sampling_info`, reads the tokens emitted before it."""
    return sampling_info is not None and (
        sampling_info.has_custom_logit_processor
        or sampling_info.acc_additive_penalties is not None
        or sampling_info.acc_scaling_penalties is not None
    )


def remembers_emitted_tokens(forward: Callable) -> Callable:
    """Wrap the worker's `forward_batch_generation`: store what it emits, while somebody in the batch needs it."""

    @functools.wraps(forward)
    def remember(self, batch, *args, **kwargs):
        result = forward(self, batch, *args, **kwargs)
        if needs_history(batch.sampling_info) and batch.batch_size() > 0 and not batch.forward_mode.is_idle():
            store = emitted_tokens(batch, int(self.block_size))
            tokens = result.next_token_ids.view(batch.batch_size(), -1)
            store.store(batch.req_pool_indices, tokens, result.accept_lens)
        return result

    return remember


def remembers_transferred_token(build_draft_input: Callable) -> Callable:
    """Wrap `build_dflash_disagg_draft_input`: the first token of a request whose prefill ran on another server."""

    @functools.wraps(build_draft_input)
    def remember(batch, last_tokens_tensor, future_map):
        orchestrator = batch.sampling_info.penalizer_orchestrator
        if orchestrator.is_required or batch.sampling_info.has_custom_logit_processor:
            emitted_tokens(batch).store(batch.req_pool_indices, last_tokens_tensor[:, None], None)
        return build_draft_input(batch, last_tokens_tensor, future_map)

    return remember


def forward_sampling_info(
    sampling_info: SamplingBatchInfo, batch: ScheduleBatch, schedule_stream: torch.Stream | None
) -> SamplingBatchInfo:
    """Upstream's copy of `sampling_info` for one forward, after the last forward's tokens have been counted.

    Args:
        sampling_info: the scheduler's own, whose penalizers live as long as the batch.
        batch: the batch about to run; a DFLASH decode batch gets the field `emitted_history`.
        schedule_stream: with overlap scheduling the stream that filters and merges the penalizers next; it waits for
            the count, which runs on the current stream. None without overlap.
    """
    orchestrator = sampling_info.penalizer_orchestrator
    history = None
    if batch.spec_algorithm.is_dflash() and batch.forward_mode.is_decode():
        if orchestrator.is_required or sampling_info.has_custom_logit_processor:
            tokens, lengths, new = emitted_tokens(batch).take(batch.req_pool_indices)
            count_tokens(orchestrator, tokens, new)
            history = EmittedHistory(penalty_state(orchestrator), tokens, lengths)
    elif counts_at_forward(batch):
        _count_decode_inputs(orchestrator, batch)
    if schedule_stream is not None and orchestrator.is_required:
        counted = torch.get_device_module(batch.device).Event()
        counted.record()
        schedule_stream.wait_event(counted)
    copy = sampling_info.copy_for_forward()
    copy.emitted_history = history
    return copy


def counts_at_forward(batch: ScheduleBatch) -> bool:
    """Whether plain decoding of `batch` counts a token when it is decoded, and not when the step is scheduled.

    With overlap scheduling the host does not know the last token of a request when it schedules the next step, and
    would count the one before, starting with the end of the prompt.
    """
    return batch.enable_overlap and batch.spec_algorithm.is_none()


def counts_once(cumulate: Callable) -> Callable:
    """Wrap `ScheduleBatch.cumulate_penalty_output_tokens`: nothing where `forward_sampling_info` counts."""

    @functools.wraps(cumulate)
    def count(self):
        if not counts_at_forward(self):
            cumulate(self)

    return count


def _count_decode_inputs(orchestrator: BatchedPenalizerOrchestrator, batch: ScheduleBatch) -> None:
    """Count the token that each decoding request of a plain batch is about to decode; its last one."""
    bs = batch.batch_size()
    if batch.forward_mode.is_decode():
        decoding = bs
        inputs = batch.input_ids[:bs]
    elif batch.forward_mode.is_mixed():
        decoding = len(batch.decoding_reqs)  # the last rows of the batch, one input each
        last = batch.input_ids[len(batch.input_ids) - decoding :]
        inputs = torch.nn.functional.pad(last, (bs - decoding, 0))
    else:
        return
    lengths = (torch.arange(bs, device=inputs.device) >= bs - decoding).to(torch.int64)
    count_tokens(orchestrator, inputs[:, None].to(torch.int64), lengths)
