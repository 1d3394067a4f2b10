"""The training schedule as a function of elapsed time, so that a run ends well whatever the machine's speed."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Seconds that a run has in all, and those it has used, over all its processes.

    ``spent`` comes from the last checkpoint when a run is resumed: time between processes does not count.
    """

    total_seconds: float
    spent: float = 0.0
    now: Callable[[], float] = time.monotonic
    _resumed: float = field(init=False)

    def __post_init__(self) -> None:
        self._resumed = self.now() - self.spent

    def update(self) -> float:
        """Reads the clock; returns the progress of the run, from 0 to 1."""
        self.spent = self.now() - self._resumed
        return self.progress

    @property
    def progress(self) -> float:
        return min(1.0, self.spent / self.total_seconds)


def learning_rate(progress: float, peak: float, warm_up: float = 0.03, floor: float = 0.01) -> float:
    """Returns the rate at ``progress`` in [0, 1]: linear up to ``peak``, then a cosine down to ``floor * peak``."""
    if progress < warm_up:
        return peak * max(progress / warm_up, floor)
    cosine = 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))
    return peak * (floor + (1 - floor) * cosine)
