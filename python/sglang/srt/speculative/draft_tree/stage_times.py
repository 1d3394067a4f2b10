"""Time per stage of the round, from a round now and then, without waiting for the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from sglang.srt.speculative.draft_tree.device_clock import DeviceClock

STAGES = ("draft", "tree_build", "verify", "accept", "commit")


class StageTimes:
    """Marks the ends of the stages of every `every`-th round; a server's is `--decode-log-interval`.

    See DeviceClock for whose time it is; a round that is one CUDA graph stamps its stages itself. `stages` are named in
    the order in which a round ends them.
    """

    def __init__(self, device: torch.device | str, every: int, stages: tuple[str, ...] = STAGES) -> None:
        self._stages = stages
        self._clock = DeviceClock(device)
        self._every = every
        self._round = 0
        self._open: list | None = None
        # Of measured rounds, in order: a mark at their end, and then the milliseconds of their stages.
        self._waiting: deque[tuple[Any, Callable[[], list[float]]]] = deque()
        self._milliseconds = dict.fromkeys(stages, 0.0)
        self._rounds = 0

    def start(self) -> None:
        """Begin a round; a round that was not finished is forgotten."""
        self._open = [self._clock.mark()] if self._begin_round() else None

    def end_of_stage(self) -> None:
        """The next of the stages ends here."""
        if self._open is None:
            return
        self._open.append(self._clock.mark())
        if len(self._open) == 1 + len(self._stages):
            marks, self._open = self._open, None
            self._waiting.append((marks[-1], lambda: [self._clock.milliseconds(*ends) for ends in pairwise(marks)]))

    def add_stamped(self, stamps: torch.Tensor) -> None:
        """A whole round at once: `stamps` [1 + stages] int64 nanoseconds, its start and the ends of its stages.

        They are copied without waiting, in the order of the current stream.
        """
        if self._begin_round():
            copied = torch.empty(stamps.shape, dtype=stamps.dtype, pin_memory=stamps.is_cuda)
            copied.copy_(stamps, non_blocking=True)
            self._waiting.append((self._clock.mark(), lambda: (copied.diff() / 1e6).tolist()))

    def mean_milliseconds(self) -> dict[str, float]:
        """Mean time of each stage over the rounds that were measured; empty before the first."""
        self._collect()
        if not self._rounds:
            return {}
        return {stage: total / self._rounds for stage, total in self._milliseconds.items()}

    @property
    def rounds(self) -> int:
        """Rounds that the means are over, as of the last call of `mean_milliseconds` or `start`."""
        return self._rounds

    def _begin_round(self) -> bool:
        """Whether the round that begins is measured."""
        self._collect()
        self._round += 1
        return (self._round - 1) % self._every == 0

    def _collect(self) -> None:
        while self._waiting and self._clock.has_passed(self._waiting[0][0]):
            _, milliseconds = self._waiting.popleft()
            for stage, spent in zip(self._stages, milliseconds(), strict=True):
                self._milliseconds[stage] += spent
            self._rounds += 1
