"""One rank measures and chooses the verify width of each class of batch sizes; all ranks follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.round_costs_file import round_costs_file
from sglang.srt.speculative.draft_tree.round_measures import EmittedByWidth, RoundClock
from sglang.srt.speculative.draft_tree.width_controller import WidthController, batch_class
from sglang.srt.speculative.draft_tree.width_graphs import widths_for
from sglang.srt.speculative.draft_tree.width_relay import WidthChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.draft_tree.config import DraftTreeConfig


class FollowedWidths:
    """What has been chosen and has come to this rank with the requests.

    Args:
        widths: that may be chosen, ascending.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)
        self._followed: dict[int, int] = {}
        self._pending: dict[int, int] = {}

    def of(self, bs: int) -> int:
        """The width of a round of `bs` requests."""
        size = batch_class(bs)
        return min(self._followed.get(size) or self._nearest(size), widths_for(size, self._widths)[-1])

    def want(self, bs: int, width: int) -> None:
        """The choosing rank would have rounds of `bs` requests at `width`, itself included once all know."""
        size = batch_class(bs)
        if width != self._followed.get(size):
            self._pending[size] = width
        else:
            self._pending.pop(size, None)

    def pending(self) -> list[WidthChoice]:
        """What is wanted and has not come back with the requests yet."""
        return [WidthChoice(size, width) for size, width in self._pending.items()]

    def follow(self, choice: WidthChoice) -> None:
        """A choice arrived with the requests: on every rank before the same batch."""
        self._followed[choice.batch_class] = choice.width
        if self._pending.get(choice.batch_class) == choice.width:
            del self._pending[choice.batch_class]

    def _nearest(self, size: int) -> int:
        """What the next smaller class follows, for a class that no choice has reached yet."""
        smaller = [known for known in self._followed if known < size]
        return self._followed[max(smaller)] if smaller else self._widths[0]


class WidthChooser:
    """Costs and accept lengths of the rounds of one server, and the widths that follow from them.

    Args:
        config: of the trees.
        device: where the rounds run.
        server_args: what costs depend on.
        alike: see RoundClock.
    """

    def __init__(
        self, config: DraftTreeConfig, device: torch.device | str, server_args: ServerArgs, *, alike: bool = True
    ) -> None:
        self._costs_file = round_costs_file(server_args)
        self._controller = WidthController(
            config.widths, config.path_length, claims=self._costs_file.load(), widths_for=widths_for
        )
        self.clock = RoundClock(device, alike=alike)
        self.emitted = EmittedByWidth(config.widths, device)

    def next_width(self, bs: int, last_width: int) -> int:
        """The width that the next round of `bs` requests should have; called once a round, of `last_width`."""
        for cost in self.clock.collect():
            self._controller.add_cost(*cost)
        for sample in self.emitted.collect():
            self._controller.add_emitted(*sample)
        width = self._controller.after_round(bs, last_width)
        if self._costs_file.is_due():
            self._costs_file.save(self._controller.costs())
        return width

    def summary(self) -> dict[str, Any]:
        """The choice and its reasons, for people to read."""
        return self._controller.summary()


def chooses() -> bool:
    """Whether this is the rank that the scheduler asks for what it adds to the requests."""
    parallel = get_parallel()
    return parallel.pp_rank == 0 and parallel.attn_tp_rank == 0 and parallel.attn_cp_rank == 0
