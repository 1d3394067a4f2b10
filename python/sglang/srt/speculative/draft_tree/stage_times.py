"""Time per stage of the round, from a round now and then, without waiting for the device."""

from __future__ import annotations

from collections import deque

import torch

from sglang.srt.speculative.draft_tree.device_clock import DeviceClock

STAGES = ("draft", "tree_build", "verify", "accept", "commit")


class StageTimes:
    """Marks the ends of the stages of every `every`-th round; a server's is `--decode-log-interval`.

    See DeviceClock for whose time it is. `stages` are named in the order in which a round ends them.
    """

    def __init__(self, device: torch.device | str, every: int, stages: tuple[str, ...] = STAGES) -> None:
        self._stages = stages
        self._clock = DeviceClock(device)
        self._every = every
        self._round = 0
        self._open: list | None = None
        self._waiting: deque[list] = deque()
        self._milliseconds = dict.fromkeys(stages, 0.0)
        self._rounds = 0

    def start(self) -> None:
        """Begin a round; a round that was not finished is forgotten."""
        self._collect()
        self._open = [self._clock.mark()] if self._round % self._every == 0 else None
        self._round += 1

    def end_of_stage(self) -> None:
        """The next of the stages ends here."""
        if self._open is None:
            return
        self._open.append(self._clock.mark())
        if len(self._open) == 1 + len(self._stages):
            self._waiting.append(self._open)
            self._open = None

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

    def _collect(self) -> None:
        while self._waiting and self._clock.has_passed(self._waiting[0][-1]):
            marks = self._waiting.popleft()
            for stage, begin, end in zip(self._stages, marks, marks[1:], strict=False):
                self._milliseconds[stage] += self._clock.milliseconds(begin, end)
            self._rounds += 1
