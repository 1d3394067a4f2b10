"""Draft trees whose width is chosen per round, plain decoding among the choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath
from sglang.kernels.draft_tree.tree_build import DraftTree, build_tree
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.round_costs_file import round_costs_file
from sglang.srt.speculative.draft_tree.round_measures import EmittedByWidth, RoundClock
from sglang.srt.speculative.draft_tree.width_controller import WidthController, batch_class
from sglang.srt.speculative.draft_tree.width_graphs import WidthGraphs, widths_for
from sglang.srt.speculative.draft_tree.width_relay import WidthChoice
from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker, decodes

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.speculative.draft_tree.lattice import DraftLattice


class AdaptiveTreeWorker(DraftTreeWorker):
    """A DraftTreeWorker that follows the width chosen for the size of each batch.

    Every rank follows the choices that reach it with the requests; the first rank makes them. Trees are built for the
    greatest width and cut, which costs little and shows what other widths would accept.
    """

    def __init__(self, server_args, gpu_id, nccl_port, target_worker) -> None:
        super().__init__(server_args, gpu_id, nccl_port, target_worker)
        self._followed: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._whole_tree: DraftTree | None = None
        self._last_width = self.tree.widths[0]
        self._graphs: WidthGraphs | None = None
        self._controller = None
        if _chooses():
            self._costs_file = round_costs_file(server_args)
            self._controller = WidthController(
                self.tree.widths, self.tree.path_length, claims=self._costs_file.load(), widths_for=widths_for
            )
            self._clock = RoundClock(self.device)
            self._emitted = EmittedByWidth(self.tree.widths, self.device)
            self.round_metrics.choices = self._controller.summary

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        # One backend serves every width where nothing is captured and the mask is read as it is.
        if not getattr(self.model_runner.attn_backend, "reads_ancestor_mask", False):
            self._graphs = WidthGraphs(self.model_runner, self.tree.widths)

    # --- the choice ------------------------------------------------------------------------------------------

    def round_width(self, bs: int) -> int:
        size = batch_class(bs)
        if self._controller is not None:
            self._choose(bs, size)
        allowed = widths_for(size, self.tree.widths)
        self._last_width = min(self._followed.get(size) or self._nearest(size), allowed[-1])
        self._use(self._last_width)
        return self._last_width

    def pending_width_choices(self) -> list[WidthChoice]:
        """Choices that have not come back with the requests yet; asked for once per batch on the choosing rank."""
        return [WidthChoice(size, width) for size, width in self._pending.items()]

    def follow_width_choice(self, choice: WidthChoice) -> None:
        """A choice arrived with the requests: on every rank before the same batch."""
        self._followed[choice.batch_class] = choice.width
        if self._pending.get(choice.batch_class) == choice.width:
            del self._pending[choice.batch_class]

    def _choose(self, bs: int, size: int) -> None:
        for cost in self._clock.collect():
            self._controller.add_cost(*cost)
        for sample in self._emitted.collect():
            self._controller.add_emitted(*sample)
        width = self._controller.after_round(bs, self._last_width)
        if width != self._followed.get(size):
            self._pending[size] = width
        else:
            self._pending.pop(size, None)
        if self._costs_file.is_due():
            self._costs_file.save(self._controller.costs())

    def _nearest(self, size: int) -> int:
        """What the next smaller class follows, for a class that no choice has reached yet."""
        smaller = [known for known in self._followed if known < size]
        return self._followed[max(smaller)] if smaller else self.tree.widths[0]

    def _use(self, width: int) -> None:
        if self._graphs is not None:
            self._graphs.use(width)

    # --- the round -------------------------------------------------------------------------------------------

    def forward_batch_generation(self, batch: ScheduleBatch, *args, **kwargs) -> GenerationBatchResult:
        is_round = decodes(batch)
        result = super().forward_batch_generation(batch, *args, **kwargs)
        if self._controller is not None:
            if is_round:
                self._clock.end_of_round(len(batch.reqs), self._last_width)
            else:
                self._clock.interrupt()
        self._use(self.tree.width)  # what everything but a round of another width expects
        return result

    def build_nodes(self, root_tokens: torch.Tensor, lattice: DraftLattice, width: int) -> DraftTree:
        if self._controller is None:
            return super().build_nodes(root_tokens, lattice, width)
        budget = self.tree.budget
        self._whole_tree = build_tree(root_tokens, lattice.token_ids, lattice.scores, budget, lattice.pair_scores)
        return DraftTree(*(nodes[:, :width].contiguous() for nodes in self._whole_tree))

    def accept(self, tree: DraftTree, draws: torch.Tensor) -> AcceptedPath:
        path = super().accept(tree, draws)
        if self._controller is not None and tree.tokens.shape[1] > 1:
            self._emitted.add(path, self._whole_tree, tree.tokens.shape[1])
        return path


def _chooses() -> bool:
    """Whether this is the rank that the scheduler asks for what it adds to the requests."""
    parallel = get_parallel()
    return parallel.pp_rank == 0 and parallel.attn_tp_rank == 0 and parallel.attn_cp_rank == 0
