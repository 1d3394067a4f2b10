"""What finished rounds say about widths, brought to the host without waiting for the device.

`RoundClock` measures the time from one round's end to the next one's, all host work included: what a user waits for.
`EmittedByWidth` says what a round of every width would have emitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath
from sglang.kernels.draft_tree.tree_build import DraftTree
from sglang.srt.speculative.draft_tree.device_clock import DeviceClock


class RoundCostSample(NamedTuple):
    bs: int
    width: int
    seconds: float


class EmittedSample(NamedTuple):
    """Of all requests of a round together; see AcceptLengths.add."""

    width: int
    requests: int
    emitted: list[float]
    expected: list[float]


class RoundClock:
    """Intervals between the ends of consecutive rounds of one batch size and width."""

    def __init__(self, device: torch.device | str) -> None:
        self._clock = DeviceClock(device)
        self._last: tuple[tuple[int, int], object] | None = None
        self._waiting: deque[tuple[tuple[int, int], object, object]] = deque()

    def interrupt(self) -> None:
        """Something else ran, a prefill say: the next interval is not a round's."""
        self._last = None

    def end_of_round(self, bs: int, width: int) -> None:
        mark = self._clock.mark()
        if self._last is not None and self._last[0] == (bs, width):
            self._waiting.append(((bs, width), self._last[1], mark))
        self._last = ((bs, width), mark)

    def collect(self) -> Iterator[RoundCostSample]:
        """The intervals that are known by now, each once."""
        while self._waiting and self._clock.has_passed(self._waiting[0][2]):
            (bs, width), begin, end = self._waiting.popleft()
            yield RoundCostSample(bs, width, self._clock.milliseconds(begin, end) / 1e3)


def emitted_by_width(path: AcceptedPath, tree: DraftTree, widths: torch.Tensor) -> torch.Tensor:
    """What trees of each width would have emitted, and what the draft expected of them.

    The first nodes of a best-first tree are the tree of a smaller budget, so that an accepted path ends, in a smaller
    tree, before its first node beyond that. The expectation of a tree is the sum of its path probabilities.

    Args:
        path: of [bs, depth].
        tree: of [bs, nodes].
        widths: [widths] int64, nodes that a tree has, root included.

    Returns:
        [2, widths] float32, over all requests: tokens emitted; tokens expected. For widths beyond that of `tree` both
        are those of `tree`.
    """
    inside = (path.node_ids[None] >= 0) & (path.node_ids[None] < widths[:, None, None])
    node = torch.arange(tree.tokens.shape[1], device=widths.device)
    likely = tree.path_scores.float().exp().sum(dim=0)
    expected = torch.where(node < widths[:, None], likely, 0.0).sum(dim=1)
    return torch.stack([inside.sum(dim=(1, 2)).float(), expected])


class EmittedByWidth:
    """Figures of `emitted_by_width`, on their way to the host.

    Args:
        widths: ascending.
    """

    def __init__(self, widths: Sequence[int], device: torch.device | str) -> None:
        self._widths = torch.tensor(list(widths), dtype=torch.int64, device=device)
        self._on_cuda = self._widths.is_cuda
        self._waiting: deque[tuple[int, int, torch.Tensor, object]] = deque()

    def add(self, path: AcceptedPath, tree: DraftTree, width: int) -> None:
        """A round that verified the first `width` nodes of `tree` and accepted `path`."""
        figures = emitted_by_width(path, tree, self._widths)
        event = None
        if self._on_cuda:
            on_host = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True)
            figures = on_host.copy_(figures, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waiting.append((width, len(path.length), figures, event))

    def collect(self) -> Iterator[EmittedSample]:
        """The rounds whose figures have arrived, each once."""
        while self._waiting and (self._waiting[0][3] is None or self._waiting[0][3].query()):
            width, requests, figures, _ = self._waiting.popleft()
            emitted, expected = figures.tolist()
            yield EmittedSample(width, requests, emitted, expected)
