"""Where upstream's relay between pipeline stages, made for EAGLE, hands its work to `pipeline_stage.py`.

Upstream's scheduler imports this module while it is loaded, so the rest comes late.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from sglang.srt.runtime_context import get_parallel

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


def for_trees(handler: str) -> Callable[[Callable], Callable]:
    """Decorate a method of the scheduler: with draft trees, the function `handler` of `pipeline_stage.py` in its place.

    The function gets the same arguments, the scheduler first.
    """

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def choose(scheduler: Scheduler, *args, **kwargs):
            if not _relays_trees(scheduler):
                return method(scheduler, *args, **kwargs)
            from sglang.srt.speculative.draft_tree import pipeline_stage

            return getattr(pipeline_stage, handler)(scheduler, *args, **kwargs)

        return choose

    return decorate


def set_up_stage(scheduler: Scheduler) -> None:
    """Called by each rank when its part of the target is loaded, before the draft is built on the last stage."""
    if _relays_trees(scheduler):
        from sglang.srt.speculative.draft_tree import pipeline_stage

        pipeline_stage.set_up(scheduler)


def captures_widths(init_all_cuda_graphs: Callable) -> Callable:
    """Wrap `Scheduler.init_all_cuda_graphs`, which on a stage without a draft captures the target's alone."""

    @functools.wraps(init_all_cuda_graphs)
    def capture(scheduler: Scheduler) -> None:
        init_all_cuda_graphs(scheduler)
        if _relays_trees(scheduler) and scheduler.draft_worker is None:
            with torch.no_grad():  # as upstream captures
                scheduler.draft_tree_stage.followed_widths.init_cuda_graphs()

    return capture


def finishes_result(prepare: Callable) -> Callable:
    """Wrap `_pp_prep_batch_result`: what the result of a round has beyond EAGLE's."""

    @functools.wraps(prepare)
    def finish(scheduler: Scheduler, batch, mb_metadata, pp_outputs):
        result = prepare(scheduler, batch, mb_metadata, pp_outputs)
        if _relays_trees(scheduler):
            from sglang.srt.speculative.draft_tree import pipeline_stage

            pipeline_stage.finish_result(scheduler, result, pp_outputs)
        return result

    return finish


def sends_path_scores(prepare: Callable) -> Callable:
    """Wrap `_pp_prepare_tensor_dict`: what goes around the ring beyond EAGLE's."""

    @functools.wraps(prepare)
    def prepare_all(scheduler: Scheduler, result, batch):
        tensors = prepare(scheduler, result, batch)
        if _relays_trees(scheduler):
            from sglang.srt.speculative.draft_tree import pipeline_stage

            pipeline_stage.send_path_scores(tensors, result)
        return tensors

    return prepare_all


def _relays_trees(scheduler: Scheduler) -> bool:
    return get_parallel().pp_size > 1 and scheduler.spec_algorithm.is_dflash()
