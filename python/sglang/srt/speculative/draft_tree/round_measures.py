"""What finished rounds say about widths, brought to the host without waiting for the device.

`RoundClock` measures the time from one round's end to the next one's, all host work included: what a user waits for.
`EmittedByWidth` says what a round of every width would have emitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

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
    """Intervals between the ends of consecutive rounds.

    Args:
        device: where they run.
        alike: only rounds of one batch size and width are compared, so that no change is counted. Over pipeline stages
            the rounds of other micro-batches lie between, and an interval counts for the round that ends it: the time
            of the slowest stage while the stages are busy, and of all stages while they wait for each other.
    """

    def __init__(self, device: torch.device | str, *, alike: bool = True) -> None:
        self._clock, self._alike = DeviceClock(device), alike
        self._last: tuple[tuple[int, int], object] | None = None
        self._waiting: deque[tuple[tuple[int, int], object, object]] = deque()

    def interrupt(self) -> None:
        """Something else ran, a prefill say: the next interval is not a round's."""
        self._last = None

    def end_of_round(self, bs: int, width: int) -> None:
        mark = self._clock.mark()
        if self._last is not None and (not self._alike or self._last[0] == (bs, width)):
            self._waiting.append(((bs, width), self._last[1], mark))
        self._last = ((bs, width), mark)

    def collect(self) -> Iterator[RoundCostSample]:
        """The intervals that are known by now, each once."""
        while self._waiting and self._clock.has_passed(self._waiting[0][2]):
            (bs, width), begin, end = self._waiting.popleft()
            yield RoundCostSample(bs, width, self._clock.milliseconds(begin, end) / 1e3)


def emitted_by_width(node_ids: torch.Tensor, path_scores: torch.Tensor, widths: torch.Tensor) -> torch.Tensor:
    """What trees of each width would have emitted, and what the draft expected of them.

    The first nodes of a best-first tree are the tree of a smaller budget, so that an accepted path ends, in a smaller
    tree, before its first node beyond that. The expectation of a tree is the sum of its path probabilities. A request
    whose tree has no draft nodes, such as one just after its prompt, says nothing of widths and is left out.

    Args:
        node_ids: [bs, depth] int64, the accepted path, -1 behind its end.
        path_scores: [bs, nodes] float32 of the trees, -inf for padding; at least two nodes.
        widths: [widths] int64, nodes that a tree has, root included.

    Returns:
        [2, widths] float32, over all requests: tokens emitted; tokens expected. For widths beyond that of the trees
        both are those of the trees.
    """
    drafted = path_scores[:, 1:2] > -torch.inf
    inside = (node_ids[None] >= 0) & (node_ids[None] < widths[:, None, None]) & drafted
    node = torch.arange(path_scores.shape[1], device=widths.device)
    likely = torch.where(drafted, path_scores.float().exp(), 0.0).sum(dim=0)
    expected = torch.where(node < widths[:, None], likely, 0.0).sum(dim=1)
    return torch.stack([inside.sum(dim=(1, 2)).float(), expected])


class EmittedByWidth:
    """Figures of `emitted_by_width`, on their way to the host.

    Args:
        widths: ascending.
    """

    def __init__(self, widths: Sequence[int], device: torch.device | str) -> None:
        # A tree of the root alone emits one token a request: the number of requests comes with the rest.
        self._widths = torch.tensor([1, *widths], dtype=torch.int64, device=device)
        self._on_cuda = self._widths.is_cuda
        self._waiting: deque[tuple[int, torch.Tensor, object]] = deque()

    def add(self, node_ids: torch.Tensor, path_scores: torch.Tensor, width: int) -> None:
        """A round that verified the first `width` nodes of its trees; the tensors as in `emitted_by_width`."""
        self.add_figures(self.figures(node_ids, path_scores), width)

    def figures(self, node_ids: torch.Tensor, path_scores: torch.Tensor) -> torch.Tensor:
        """`emitted_by_width` for these widths, [2, 1 + widths]; a CUDA graph can hold it."""
        return emitted_by_width(node_ids, path_scores, self._widths)

    def no_figures(self) -> torch.Tensor:
        """Zeros like `figures`."""
        return torch.zeros((2, len(self._widths)), dtype=torch.float32, device=self._widths.device)

    def add_figures(self, figures: torch.Tensor, width: int) -> None:
        """The `figures` of a round that verified `width` nodes, valid until the next round."""
        event = None
        if self._on_cuda:
            on_host = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True)
            figures = on_host.copy_(figures, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waiting.append((width, figures, event))

    def collect(self) -> Iterator[EmittedSample]:
        """The rounds whose figures have arrived, each once; of rounds without drafts there are none."""
        while self._waiting and (self._waiting[0][2] is None or self._waiting[0][2].query()):
            width, figures, _ = self._waiting.popleft()
            emitted, expected = figures.tolist()
            if emitted[0]:
                yield EmittedSample(width, int(emitted[0]), emitted[1:], expected[1:])
