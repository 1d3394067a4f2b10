"""The decode round on the last pipeline stage: verify -> accept -> commit -> draft -> tree_build.

The trees of a round come with the batch. What is drafted at its end goes with the outputs to all stages, so that the
next round starts on the first stage without waiting for a draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.draft_tree.emitted_tokens import remembers_emitted_tokens
from sglang.srt.speculative.draft_tree.pipeline_relay import Trees, roots
from sglang.srt.speculative.draft_tree.pipeline_stage import StageVerifyInput
from sglang.srt.speculative.draft_tree.pipeline_widths import StageWidths
from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch


class PipelineDraftTreeWorker(DraftTreeWorker):
    """`DraftTreeWorker` where the target is split over pipeline stages; it exists on the last one."""

    stages = ("verify", "accept", "commit", "draft", "tree_build")
    plain_steps = False  # the stages before prepare a verify, whatever its width
    _received = None  # what the stage before sent for the forward at hand

    def __init__(self, server_args, gpu_id, nccl_port, target_worker) -> None:
        super().__init__(server_args, gpu_id, nccl_port, target_worker)
        self.followed_widths = StageWidths(self.model_runner, self.tree)

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        self.followed_widths.init_cuda_graphs()

    def forward_batch_generation(
        self,
        batch: ScheduleBatch,
        on_publish: Callable | None = None,
        grammar_barrier: Callable | None = None,
        pp_proxy_tensors=None,
    ) -> GenerationBatchResult:
        self._received = pp_proxy_tensors
        return super().forward_batch_generation(batch, on_publish, grammar_barrier, pp_proxy_tensors)

    def target_forward(self, forward_batch: ForwardBatch) -> GenerationBatchResult:
        return self.target_worker.forward_batch_generation(
            batch=None,
            forward_batch=forward_batch,
            is_verify=True,
            skip_attn_backend_init=True,
            pp_proxy_tensors=self._received,
        )

    @remembers_emitted_tokens
    def _decode(
        self, batch: ScheduleBatch, on_publish: Callable | None, grammar_barrier: Callable | None
    ) -> GenerationBatchResult:
        round_input: StageVerifyInput = batch.spec_info
        window, trees, layout = round_input.window, round_input.trees, round_input.layout
        self.stage_times.start()
        grammar_tree = self.grammar_tree(batch, trees, layout)
        verified = self.verify(batch, None, window, trees, layout)
        self.stage_times.end_of_stage()
        draws = self.target_draws(batch, window, trees, layout, verified, grammar_tree, grammar_barrier)
        path = self.accept(trees, draws)
        self.stage_times.end_of_stage()
        result = self.commit(batch, window, verified, draws, path, on_publish)
        result.accept_index = path.node_ids
        self.stage_times.end_of_stage()
        self._draft_next_trees(batch, result)
        self.round_metrics.verified(*trees.tokens.shape)
        return result

    def _draft_next_trees(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Put the trees of the next round into `result`, under the names that upstream's relay has for EAGLE's.

        They are of the greatest width: the batch may be another one then, and its width with it.
        """
        # The scheduler restores the batch behind the forward. On the host a bound is enough, and the device is not
        # waited for.
        batch.seq_lens = result.new_seq_lens
        batch.seq_lens_cpu = batch.seq_lens_cpu + self.tree.path_length
        if self.followed_widths.of(len(batch.reqs)) == 1:
            lattice, trees = None, roots(result.next_draft_input.bonus_tokens)
        else:
            window = self.open_window(batch, None, self.tree.width)
            lattice = self.draft(batch, result.next_draft_input, window)
        self.stage_times.end_of_stage()
        if lattice is not None:
            tree = self.best_tree(result.next_draft_input.bonus_tokens, lattice, self.tree.width)
            trees = Trees(tree.tokens, tree.parents, tree.depths, tree.path_scores)
        result.next_verify_chain, result.next_verify_parent_list, result.next_verify_top_scores_index = trees[:3]
        result.next_path_scores = trees.path_scores
        self.stage_times.end_of_stage()
