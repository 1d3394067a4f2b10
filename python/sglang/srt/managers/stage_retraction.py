"""Retraction where several micro-batches share the KV pool: the last request of one waits instead of being aborted.

Upstream retracts requests of the micro-batch that found the pool full. Its last request it aborts, since nothing is
left to free; with pipeline parallelism the other micro-batches hold the rest of the pool, and give it back in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.runtime_context import get_parallel

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import Scheduler


def retract_requests(scheduler: Scheduler, batch: ScheduleBatch) -> tuple[list[Req], float, list[Req]]:
    """`batch.retract_decode()`: requests to queue again, the new ratio of new tokens, requests to abort.

    A request that had to leave as the last of its micro-batch is queued again while others hold part of the pool. All
    requests come back one token further at least, since their prompt's forward emits one, so this ends.
    """
    ratio = scheduler.new_token_ratio_tracker.current
    retracted, new_ratio, aborted = batch.retract_decode()
    if get_parallel().pp_size == 1 or not batch.is_empty() or not aborted or not _others_hold_slots(scheduler, batch):
        return retracted, new_ratio, aborted
    last = aborted[-1]
    if last.beam_group is not None:
        return retracted, new_ratio, aborted
    last.to_finish = None
    # An empty batch estimates that nobody needs anything, and would have the request back at once.
    return [*retracted, last], max(ratio, new_ratio), aborted[:-1]


def _others_hold_slots(scheduler: Scheduler, batch: ScheduleBatch) -> bool:
    micro_batches = (*scheduler.running_mbs, *scheduler.mbs, *scheduler.last_mbs)
    return any(not other.is_empty() for other in micro_batches if other is not None and other is not batch)
