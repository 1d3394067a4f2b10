"""The verify widths of a pipeline stage: of the round at hand, and what the first stage learns from finished ones."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths, WidthChooser
from sglang.srt.speculative.draft_tree.width_graphs import WidthGraphs

if TYPE_CHECKING:
    import torch

    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.speculative.draft_tree.config import DraftTreeConfig
    from sglang.srt.speculative.draft_tree.pipeline_relay import RelayedTrees


class StageWidths(FollowedWidths):
    """The widths that all stages follow, with this stage's backends and graphs for them.

    Args:
        runner: of this stage's part of the target.
        config: of the trees.
    """

    def __init__(self, runner: ModelRunner, config: DraftTreeConfig) -> None:
        super().__init__(config.widths)
        self._runner, self._graphs = runner, None

    def init_cuda_graphs(self) -> None:
        """Behind upstream's own."""
        self._graphs = WidthGraphs.of(self._runner, self._widths, plain_steps=False)

    def begin_round(self, relayed: RelayedTrees) -> int:
        """The width of the round that verifies `relayed`: the least where nothing has been drafted.

        The target's forwards are of that width until the next round. Prompts run on the backend of any width.
        """
        width = self.of(len(relayed.rids)) if relayed.has_drafts else self._widths[0]
        if self._graphs is not None:
            self._graphs.use(width)
        return width


class RoundsUnderWay:
    """Rounds whose outputs are on their way around the ring, which keeps their order, to a stage without a draft."""

    def __init__(self, chooser: WidthChooser | None) -> None:
        self._chooser = chooser
        self._rounds: deque[tuple[int, torch.Tensor]] = deque()

    def begin(self, width: int, path_scores: torch.Tensor) -> None:
        """`path_scores` [bs, nodes] of the whole trees, of which `width` nodes are verified."""
        self._rounds.append((width, path_scores))

    def end(self, node_ids: torch.Tensor) -> tuple[int, int | None]:
        """The first of them has come back, with its accepted paths `node_ids` [bs, depth].

        Returns its width, and on the choosing stage the width that the next round like it should have.
        """
        width, path_scores = self._rounds.popleft()
        if self._chooser is None:
            return width, None
        bs = len(node_ids)
        self._chooser.clock.end_of_round(bs, width)
        if width > 1:
            self._chooser.emitted.add(node_ids, path_scores, width)
        return width, self._chooser.next_width(bs, width)

    def interrupt(self) -> None:
        """Prompts came back."""
        if self._chooser is not None:
            self._chooser.clock.interrupt()
