"""How the ranks of a server agree on verify widths.

One rank chooses. Its choice travels with the requests, which the scheduler brings to all ranks in the same order before
each batch, and every rank follows it from the same batch on. Nothing waits for it, and without a change nothing is
sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang.srt.runtime_context import get_spec

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths


@dataclass(frozen=True)
class WidthChoice:
    """From the next batch on, batches of this class are verified at this width."""

    batch_class: int
    width: int


def sends_width_choices(poll: Callable) -> Callable:
    """Wrap `Scheduler._poll_timeout_aborts`: what the choosing rank adds to the requests of this iteration."""

    @functools.wraps(poll)
    def poll_all(self: Scheduler) -> list:
        requests = poll(self)
        # Asking the worker of a chain would take its detour through all that the target's worker has.
        if not get_spec().speculative_dflash_tree_budget:
            return requests
        widths = _followed_widths(self)
        return [*requests, *(widths.pending() if widths is not None else ())]

    return poll_all


def receives_width_choices(init_dispatcher: Callable) -> Callable:
    """Wrap `Scheduler.init_request_dispatcher`."""

    @functools.wraps(init_dispatcher)
    def init(self: Scheduler) -> None:
        from sglang.utils import TypeBasedDispatcher

        init_dispatcher(self)
        self._request_dispatcher += TypeBasedDispatcher(
            [(WidthChoice, lambda choice: _followed_widths(self).follow(choice))]
        )

    return init


def _followed_widths(scheduler: Scheduler) -> FollowedWidths | None:
    """Those of the draft's worker, or of what a pipeline stage without a draft has in its place."""
    worker = scheduler.draft_worker or getattr(scheduler, "draft_tree_stage", None)
    return getattr(worker, "followed_widths", None)
