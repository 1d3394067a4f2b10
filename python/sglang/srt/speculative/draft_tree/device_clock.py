"""Time between moments of the device's work, known without waiting for it."""

from __future__ import annotations

import time
from typing import Any

import torch


class DeviceClock:
    """On CUDA a mark is an event, and times are the device's, waiting for the host included; elsewhere the host's."""

    def __init__(self, device: torch.device | str) -> None:
        self._on_cuda = torch.device(device).type == "cuda"

    def mark(self) -> Any:
        """The moment at which what has been asked of the device so far is done."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, mark: Any) -> bool:
        return not self._on_cuda or mark.query()

    def milliseconds(self, begin: Any, end: Any) -> float:
        """Between two marks that have passed."""
        return begin.elapsed_time(end) if self._on_cuda else 1e3 * (end - begin)
