"""Draft trees whose width is chosen per round, plain decoding among the choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.kernels.draft_tree.accept_walk import AcceptedPath
from sglang.kernels.draft_tree.tree_build import DraftTree
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.draft_tree.plain_step_tail import PlainStepTail
from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths, WidthChooser, chooses
from sglang.srt.speculative.draft_tree.width_graphs import WidthGraphs, captures, largest_batch
from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker, decodes

if TYPE_CHECKING:
    import torch

    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.speculative.draft_tree.lattice import DraftLattice


class AdaptiveTreeWorker(DraftTreeWorker):
    """A DraftTreeWorker that follows the width chosen for the size of each batch.

    Trees of the choosing rank are built for the greatest width and cut, which costs little and shows what other widths
    would accept.
    """

    def __init__(self, server_args, gpu_id, nccl_port, target_worker) -> None:
        super().__init__(server_args, gpu_id, nccl_port, target_worker)
        self.followed_widths = FollowedWidths(self.tree.widths)
        self._whole_tree: DraftTree | None = None
        self._last_width = self.tree.widths[0]
        self._graphs: WidthGraphs | None = None
        self._chooser: WidthChooser | None = None
        if chooses():
            self._chooser = WidthChooser(self.tree, self.device, server_args)
            self.round_metrics.choices = self._chooser.summary

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        if captures(self.model_runner):
            self.plain_step_tail = PlainStepTail(self, largest_batch())
        self._graphs = WidthGraphs.of(self.model_runner, self.tree.widths, plain_steps=True, tail=self.plain_step_tail)

    # --- the choice ------------------------------------------------------------------------------------------

    def round_width(self, bs: int) -> int:
        if self._chooser is not None:
            self.followed_widths.want(bs, self._chooser.next_width(bs, self._last_width))
        self._last_width = self.followed_widths.of(bs)
        self._use(self._last_width)
        return self._last_width

    def _use(self, width: int) -> None:
        if self._graphs is not None:
            self._graphs.use(width)

    # --- the round -------------------------------------------------------------------------------------------

    def forward_batch_generation(self, batch: ScheduleBatch, *args, **kwargs) -> GenerationBatchResult:
        is_round = decodes(batch)
        result = super().forward_batch_generation(batch, *args, **kwargs)
        if self._chooser is not None:
            if is_round:
                self._chooser.clock.end_of_round(len(batch.reqs), self._last_width)
            else:
                self._chooser.clock.interrupt()
        self._use(self.tree.width)  # what everything but a round of another width expects
        return result

    def build_nodes(self, root_tokens: torch.Tensor, lattice: DraftLattice, width: int) -> DraftTree:
        if self._chooser is None:
            return super().build_nodes(root_tokens, lattice, width)
        self._whole_tree = super().build_nodes(root_tokens, lattice, self.tree.width)
        return DraftTree(*(nodes[:, :width].contiguous() for nodes in self._whole_tree))

    def no_figures(self) -> torch.Tensor | None:
        return None if self._chooser is None else self._chooser.emitted.no_figures()

    def figures(self, path: AcceptedPath, path_scores: torch.Tensor) -> torch.Tensor:
        return self._chooser.emitted.figures(path.node_ids, path_scores)

    def replayed(self, figures: torch.Tensor | None, width: int) -> None:
        if figures is not None:
            self._chooser.emitted.add_figures(figures, width)

    def accept(self, tree: DraftTree, draws: torch.Tensor) -> AcceptedPath:
        path, width = super().accept(tree, draws), tree.tokens.shape[1]
        if self._chooser is not None and width > 1:
            self._chooser.emitted.add(path.node_ids, self._whole_tree.path_scores, width)
        return path
