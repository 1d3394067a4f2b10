"""Who is queued again and who is aborted when a micro-batch finds the KV pool full."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from sglang.srt.managers import stage_retraction
from sglang.srt.managers.scheduler import Scheduler


def micro_batch(*reqs, retracts=()):
    """A batch whose retraction empties it: it queues `retracts` again and aborts its last request."""
    batch = SimpleNamespace(reqs=list(reqs))
    batch.is_empty = lambda: not batch.reqs

    def retract_decode():
        last = batch.reqs[0]
        last.to_finish = "abort"
        batch.reqs = []
        return list(retracts), 0.0, [last]

    batch.retract_decode = retract_decode
    return batch


def request(beam_group=None):
    return SimpleNamespace(to_finish=None, beam_group=beam_group)


@pytest.fixture
def retract(monkeypatch):
    def run(batch, *others, pp_size=2):
        monkeypatch.setattr(stage_retraction, "get_parallel", lambda: SimpleNamespace(pp_size=pp_size))
        scheduler = SimpleNamespace(
            running_mbs=[batch, *others], mbs=[None, batch], last_mbs=[None] * 2, new_token_ratio_tracker=None
        )
        scheduler.new_token_ratio_tracker = SimpleNamespace(current=0.6)
        return stage_retraction.retract_requests(scheduler, batch)

    return run


def test_the_last_request_waits_while_another_micro_batch_holds_slots(retract):
    first, last = request(), request()
    retracted, ratio, aborted = retract(micro_batch(last, retracts=[first]), micro_batch(request()))
    assert (retracted, ratio, aborted) == ([first, last], 0.6, [])
    assert last.to_finish is None


@pytest.mark.parametrize("others, pp_size", [([micro_batch()], 2), ([micro_batch(request())], 1)])
def test_a_request_that_has_the_pool_to_itself_is_aborted_as_before(retract, others, pp_size):
    last = request()
    assert retract(micro_batch(last), *others, pp_size=pp_size) == ([], 0.0, [last])
    assert last.to_finish == "abort"


def test_a_beam_group_cannot_come_back(retract):
    last = request(beam_group=object())
    assert retract(micro_batch(last), micro_batch(request()))[2] == [last]


def test_the_scheduler_aborts_nobody_while_another_micro_batch_holds_slots(monkeypatch):
    monkeypatch.setattr(stage_retraction, "get_parallel", lambda: SimpleNamespace(pp_size=2))
    last = MagicMock(beam_group=None, rid="last", output_ids=[], origin_input_ids=[])
    full = MagicMock(**{"check_decode_mem.return_value": False, "batch_size.return_value": 1})
    full.is_empty.side_effect = lambda: bool(full.retract_decode.called)
    full.retract_decode.return_value = ([], 0.0, [last])
    scheduler = MagicMock(running_mbs=[full, micro_batch(request())], mbs=[], last_mbs=[])
    scheduler._reqs_finishing_inflight.return_value = []
    scheduler.token_to_kv_pool_allocator.available_size.return_value = 0
    scheduler.new_token_ratio_tracker.current = 0.6
    scheduler.metrics_reporter.enable_metrics = False
    scheduler.tree_cache.req_to_token_pool.mamba_allocator = None
    Scheduler.update_running_batch(scheduler, full)
    assert not scheduler.send_abort_output.called
