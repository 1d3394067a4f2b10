"""Time per stage of the round, from a round now and then, without waiting for the device."""

from __future__ import annotations

import time
from collections import deque

import torch

STAGES = ("draft", "tree_build", "verify", "accept", "commit")


class StageTimes:
    """Marks the ends of the stages of every `every`-th round; a server's is `--decode-log-interval`.

    On CUDA a mark is an event, read once the device has passed it: a stage's time is then the device's, waiting for the
    host included. Elsewhere it is the host's clock. `stages` are named in the order in which a round ends them.
    """

    def __init__(self, device: torch.device | str, every: int, stages: tuple[str, ...] = STAGES) -> None:
        self._stages = stages
        self._on_cuda = torch.device(device).type == "cuda"
        self._every = every
        self._round = 0
        self._open: list | None = None
        self._waiting: deque[list] = deque()
        self._milliseconds = dict.fromkeys(stages, 0.0)
        self._rounds = 0

    def start(self) -> None:
        """Begin a round; a round that was not finished is forgotten."""
        self._collect()
        self._open = [self._mark()] if self._round % self._every == 0 else None
        self._round += 1

    def end_of_stage(self) -> None:
        """The next of the stages ends here."""
        if self._open is None:
            return
        self._open.append(self._mark())
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

    def _mark(self):
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _collect(self) -> None:
        while self._waiting and (not self._on_cuda or self._waiting[0][-1].query()):
            marks = self._waiting.popleft()
            for stage, begin, end in zip(self._stages, marks, marks[1:], strict=False):
                elapsed = begin.elapsed_time(end) if self._on_cuda else 1e3 * (end - begin)
                self._milliseconds[stage] += elapsed
            self._rounds += 1
