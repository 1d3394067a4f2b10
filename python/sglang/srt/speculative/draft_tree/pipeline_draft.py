"""Building the draft where only the last pipeline stage has one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang.srt.runtime_context import get_parallel

if TYPE_CHECKING:
    from sglang.srt.managers.tp_worker import TpModelWorker


def builds_on_last_stage(build: Callable, target_worker: TpModelWorker) -> Callable:
    """`build_draft_tp_worker` that waits for no rank of another stage.

    By itself it agrees with all ranks on a seed, and loads with all ranks where the load format does so.
    """
    if target_worker.pp_group.world_size == 1:
        return build
    return functools.partial(build, random_seed=target_worker.random_seed, load_group=get_parallel().tp_group)
