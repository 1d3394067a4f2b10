"""What a forward emitted reaches the next one on the device: once, by request, through filter, merge and overlap."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative.draft_tree.emitted_tokens import (
    EmittedTokens,
    counts_once,
    emitted_tokens,
    forward_sampling_info,
    remembers_emitted_tokens,
    remembers_transferred_token,
)

from . import batches

VOCAB = 16
FREQUENCY = dict(frequency_penalty=1.0)


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published():
        yield


class Worker:
    """Emits what it is told to; the seam around it is the real one."""

    block_size = 4

    def __init__(self):
        self.seen: list[SamplingBatchInfo] = []

    @remembers_emitted_tokens
    def forward_batch_generation(self, batch, tokens, lengths=None):
        self.seen.append(batch.sampling_info)
        accept_lens = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
        return SimpleNamespace(next_token_ids=torch.tensor(tokens).flatten(), accept_lens=accept_lens)


def run_forward(worker, batch, tokens, lengths=None):
    """One forward inside the scheduler's isolation, as far as sampling information goes."""
    own = batch.sampling_info
    batch.sampling_info = forward_sampling_info(own, batch, None)
    try:
        worker.forward_batch_generation(batch, tokens, lengths)
        return batch.sampling_info
    finally:
        batch.sampling_info = own


def scheduled(requests, pool, rows, mode=ForwardMode.EXTEND, **choices):
    batch = batches.batch(requests, mode=mode, pool=pool, rows=rows, **choices)
    batch.sampling_info = SamplingBatchInfo.from_schedule_batch(batch, VOCAB)
    return batch


def frequency_counts(batch) -> list[dict[int, float]]:
    earned = next(iter(batch.sampling_info.penalizer_orchestrator.penalizers.values())).cumulated_frequency_penalties
    return [{token: row[token].item() for token in row.nonzero().flatten().tolist()} for row in earned]


def test_each_token_is_counted_once_and_before_the_next_forward():
    pool, worker = batches.request_table(), Worker()
    batch = scheduled([batches.request(**FREQUENCY)] * 2, pool, [3, 1])
    run_forward(worker, batch, [5, 6])
    batch.forward_mode = ForwardMode.DECODE
    info = run_forward(worker, batch, [[7, 7, 8, 0], [9, 0, 0, 0]], [3, 1])
    assert frequency_counts(batch) == [{5: 1.0}, {6: 1.0}]
    assert info.emitted_history.penalties.frequency.earned[0].nonzero().flatten().tolist() == [5]
    info = run_forward(worker, batch, [[1, 2, 3, 4], [9, 9, 0, 0]], [4, 2])
    assert frequency_counts(batch) == [{5: 1.0, 7: 2.0, 8: 1.0}, {6: 1.0, 9: 1.0}]
    assert info.emitted_history.tokens[0, :3].tolist() == [7, 7, 8]
    assert info.emitted_history.lengths.tolist() == [3, 1]
    forward_sampling_info(batch.sampling_info, batch, None)
    forward_sampling_info(batch.sampling_info, batch, None)
    assert frequency_counts(batch) == [{1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0, 7: 2.0, 8: 1.0}, {6: 1.0, 9: 3.0}]


def test_rows_follow_their_request_when_the_batch_changes():
    pool, worker = batches.request_table(), Worker()
    batch = scheduled([batches.request(**FREQUENCY)] * 3, pool, [0, 1, 2])
    run_forward(worker, batch, [5, 6, 7])
    batch.forward_mode = ForwardMode.DECODE
    run_forward(worker, batch, [[5, 5, 0, 0], [6, 6, 0, 0], [7, 7, 0, 0]], [2, 2, 2])

    batch.reqs = [batch.reqs[2]]
    batch.req_pool_indices = batch.req_pool_indices[[2]]
    batch.sampling_info.filter_batch([2], torch.tensor([2]))
    newcomer = scheduled([batches.request(**FREQUENCY)], pool, [1])  # the row of a request that is gone
    run_forward(worker, newcomer, [8])
    batch.sampling_info.merge_batch(newcomer.sampling_info)
    batch.reqs += newcomer.reqs
    batch.req_pool_indices = torch.cat([batch.req_pool_indices, newcomer.req_pool_indices])
    run_forward(worker, batch, [[0] * 4] * 2, [1, 1])
    assert frequency_counts(batch) == [{7: 3.0}, {8: 1.0}]


def test_a_prefill_has_no_history_and_nothing_is_stored_without_need():
    pool, worker = batches.request_table(), Worker()
    plain = scheduled([batches.request()], pool, [2])
    assert run_forward(worker, plain, [5]).emitted_history is None
    assert emitted_tokens(plain).lengths[2].item() == 0
    penalized = scheduled([batches.request(**FREQUENCY)], pool, [2])
    assert run_forward(worker, penalized, [5]).emitted_history is None
    assert emitted_tokens(penalized).lengths[2].item() == 1


def test_the_first_token_of_a_transferred_request_is_counted():
    pool, worker = batches.request_table(), Worker()
    batch = scheduled([batches.request(output=[6], **FREQUENCY)], pool, [4], mode=ForwardMode.PREBUILT)
    remembers_transferred_token(lambda *_: None)(batch, torch.tensor([6]), None)
    batch.forward_mode = ForwardMode.DECODE
    run_forward(worker, batch, [[0] * 4], [1])
    assert frequency_counts(batch) == [{6: 1.0}]


def test_a_wider_block_keeps_what_is_stored():
    batch = batches.batch([], pool=batches.request_table())
    emitted_tokens(batch, 2).store(torch.tensor([1]), torch.tensor([[3, 4]]), torch.tensor([2]))
    tokens, lengths, new = emitted_tokens(batch, 5).take(torch.tensor([1]))
    assert (tokens.tolist(), lengths.tolist(), new.tolist()) == ([[3, 4, 0, 0, 0]], [2], [2])
    assert emitted_tokens(batch).take(torch.tensor([1]))[2].tolist() == [0]


def test_taking_is_per_row():
    store = EmittedTokens(rows=3, width=2, device="cpu")
    store.store(torch.tensor([0, 2]), torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 2]))
    assert store.take(torch.tensor([2]))[2].tolist() == [2]
    assert store.take(torch.tensor([2, 1, 0]))[2].tolist() == [0, 0, 1]


class PlainOverlapBatch(batches.Batch):
    """A batch of plain decoding under overlap scheduling."""

    @counts_once
    def cumulate_penalty_output_tokens(self):
        raise AssertionError("counted twice")


def test_plain_decoding_with_overlap_counts_the_token_it_decodes_r05():
    """At its first decode step the host knows no output yet, and would count the end of the prompt."""
    choices = dict(pool=batches.request_table(), rows=[0, 1], algorithm=None)
    fields = vars(scheduled([batches.request(prompt=[1, 9], **FREQUENCY)] * 2, **choices))
    batch = PlainOverlapBatch(**{**fields, "enable_overlap": True})
    waits = []
    stream = SimpleNamespace(wait_event=waits.append)
    batch.forward_mode = ForwardMode.DECODE
    for inputs in ([5, 6], [5, 7]):
        batch.input_ids = torch.tensor(inputs)
        batch.cumulate_penalty_output_tokens()
        assert forward_sampling_info(batch.sampling_info, batch, stream).acc_additive_penalties is not None
    assert frequency_counts(batch) == [{5: 2.0}, {6: 1.0, 7: 1.0}]
    assert len(waits) == 2


def test_a_mixed_batch_counts_its_decoding_rows_alone_r05():
    choices = dict(pool=batches.request_table(), rows=[0, 1, 2], algorithm=None)
    batch = scheduled([batches.request(**FREQUENCY)] * 3, mode=ForwardMode.MIXED, **choices)
    batch.enable_overlap = True
    batch.decoding_reqs = batch.reqs[1:]
    batch.input_ids = torch.tensor([1, 1, 1, 5, 6])
    forward_sampling_info(batch.sampling_info, batch, None)
    assert frequency_counts(batch) == [{}, {5: 1.0}, {6: 1.0}]


def test_without_overlap_plain_decoding_counts_as_upstream_does():
    calls = []
    counts_once(calls.append)(batches.batch([], algorithm=None))
    assert len(calls) == 1
