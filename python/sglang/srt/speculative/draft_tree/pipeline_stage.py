"""A round of draft trees on every pipeline stage: the same verify batch, and the same accepted path for its KV.

Upstream's relay carries accept lengths, accepted nodes and the next trees of a micro-batch from the last stage around
the ring. The functions here take the place of scheduler methods that make EAGLE's batches of it. The last stage drafts
and accepts, see `pipeline_worker.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.tree_layout import TreeLayout, compile_tree
from sglang.srt.model_executor.cuda_graph_config import Backend
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.speculative.draft_tree.config import draft_tree_config
from sglang.srt.speculative.draft_tree.pipeline_embedding import share_embedding
from sglang.srt.speculative.draft_tree.pipeline_relay import RelayedTrees, Trees
from sglang.srt.speculative.draft_tree.pipeline_widths import RoundsUnderWay, StageWidths
from sglang.srt.speculative.draft_tree.round_metrics import RoundMetrics
from sglang.srt.speculative.draft_tree.stage_times import StageTimes
from sglang.srt.speculative.draft_tree.verify import DraftTreeVerifyInput
from sglang.srt.speculative.draft_tree.width_choice import WidthChooser, chooses
from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker, RoundWindow
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.model_executor.forward_batch_info import PPProxyTensors
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.pp_spec_relay import PPSpecRelayInput

PATH_SCORES = "spec_next_path_scores"  # the one of a tree's tensors that EAGLE's relay has no name for


@dataclass
class StageVerifyInput(DraftTreeVerifyInput):
    """A verify batch, with the trees and the window that it was made from.

    Stages without a draft prepare it as upstream prepares EAGLE's, which reads the fields named `prepared`.
    """

    trees: Trees | None = None
    layout: TreeLayout | None = None
    window: RoundWindow | None = None
    prepared_out_cache_loc: torch.Tensor | None = None  # [bs * nodes] int64
    prepared_mrope_positions: torch.Tensor | None = None  # no target over stages has them


class Stage:
    """What a stage without a draft does of a round: it opens the same window for the same trees.

    Args:
        target_worker: the stage's worker of the target.
        server_args: what round costs depend on.
    """

    plain_steps = False

    def __init__(self, target_worker: TpModelWorker, server_args: ServerArgs) -> None:
        self.tree = draft_tree_config()
        self.target_worker = target_worker
        self.model_runner = target_worker.model_runner
        self.device = target_worker.device
        self.round_metrics = RoundMetrics(self.tree.path_length, StageTimes(self.device, every=1))
        self.followed_widths = StageWidths(self.model_runner, self.tree)
        chooser = None
        if len(self.tree.widths) > 1 and chooses():
            chooser = WidthChooser(self.tree, self.device, server_args, alike=False)
            self.round_metrics.choices = chooser.summary
        self.rounds_under_way = RoundsUnderWay(chooser)
        self._columns = torch.arange(self.tree.width, device=self.device)

    def end_of_round(self, result: GenerationBatchResult, node_ids: torch.Tensor) -> None:
        """The outputs of a round are here; `node_ids` [bs, depth] is what was accepted."""
        bs = len(result.accept_lens)
        width, wanted = self.rounds_under_way.end(node_ids)
        if wanted is not None:
            self.followed_widths.want(bs, wanted)
        result.speculative_num_draft_tokens = width
        self.round_metrics.verified(bs, width)
        self.round_metrics.count((result.accept_lens - 1).tolist())

    kv_moves = DraftTreeWorker.kv_moves
    open_window = DraftTreeWorker.open_window
    verify_input = DraftTreeWorker.verify_input
    _host_lens = DraftTreeWorker._host_lens
    _flat_mask = DraftTreeWorker._flat_mask


def set_up(scheduler: Scheduler) -> None:
    """Before the draft is built: its embedding on the last stage, and what the other stages have in its place.

    Raises LaunchError for graphs of prompts, however they were asked for.
    """
    prefill = get_exec().graph.cuda_graph_config.prefill.backend
    if prefill != Backend.DISABLED:
        raise LaunchError(
            f"--pp-size {get_parallel().pp_size} with DFLASH: CUDA graphs of prompts ({prefill}) do not carry the "
            "states that the draft reads. Give --cuda-graph-backend-prefill disabled."
        )
    share_embedding(scheduler)
    if not get_parallel().pp_group.is_last_rank:
        scheduler.draft_tree_stage = Stage(scheduler.tp_worker, scheduler.server_args)


def build_verify_input(scheduler: Scheduler, batch: ScheduleBatch) -> None:
    """For `_pp_spec_rebuild_verify_input`: a decode batch gets the verify input of its relayed trees."""
    stage = scheduler.draft_worker or scheduler.draft_tree_stage
    relayed: RelayedTrees = batch.spec_info.of([req.rid for req in batch.reqs])
    width = stage.followed_widths.begin_round(relayed)
    if scheduler.draft_worker is None:
        stage.rounds_under_way.begin(width, relayed.trees.path_scores)
    trees = relayed.trees.of_width(width)
    window = stage.open_window(batch, None, width, drafts=False)
    layout = compile_tree(
        trees.parents, trees.depths, window.prefix_lens, window.mask, write_prefix=window.mask_needs_prefix
    )
    verify_input = stage.verify_input(window, trees, layout, StageVerifyInput)
    verify_input.trees, verify_input.layout, verify_input.window = trees, layout, window
    verify_input.prepared_out_cache_loc = window.slots[:, : verify_input.draft_token_num].reshape(-1)
    batch.spec_info = verify_input


def move_accepted_path(
    scheduler: Scheduler,
    batch: ScheduleBatch,
    fwd_batch: ScheduleBatch,
    fwd_rids: list[str],
    live_rids: list[str],
    verify_out_cache_loc: torch.Tensor | None,
    pp_outputs: PPProxyTensors,
) -> None:
    """For `_pp_spec_commit_relayed_accept`: the accepted path to the front of this stage's own KV.

    The last stage has done so in the round, and has no slots here.
    """
    if verify_out_cache_loc is None or len(verify_out_cache_loc) == len(fwd_rids):  # nothing moves in a tree of one
        return
    slots = verify_out_cache_loc.view(len(fwd_rids), -1)
    scheduler.draft_tree_stage.kv_moves.to_front(slots, pp_outputs["spec_accept_index"])


def adopt_next_trees(
    scheduler: Scheduler, batch: ScheduleBatch, fwd_rids: list[str], pp_outputs: PPProxyTensors
) -> None:
    """For `_pp_spec_adopt_relayed_tree`: what the last stage drafted becomes the batch's."""
    names = ("spec_next_chain", "spec_next_parents", "spec_next_top_scores", PATH_SCORES)
    _keep(batch, RelayedTrees(fwd_rids, Trees(*(pp_outputs[name] for name in names))))


def adopt_roots(scheduler: Scheduler, batch: ScheduleBatch, relayed: PPSpecRelayInput) -> None:
    """For `_pp_spec_set_relay`, which gives the requests of a prefill their first row: the sampled token."""
    _keep(batch, RelayedTrees.of_roots(relayed.rids, relayed.tokens[:, 0]))


def finish_result(scheduler: Scheduler, result: GenerationBatchResult, pp_outputs: PPProxyTensors) -> None:
    """Behind `_pp_prep_batch_result`: a row of emitted tokens is as long as a path, not as wide as a tree.

    A stage without a draft counts its rounds here; the last one has done so.
    """
    stage = scheduler.draft_tree_stage if scheduler.draft_worker is None else None
    if result.accept_lens is None:
        if stage is not None:
            stage.rounds_under_way.interrupt()
        return
    result.speculative_output_stride = len(result.next_token_ids) // len(result.accept_lens)
    if stage is not None:
        stage.end_of_round(result, pp_outputs["spec_accept_index"])


def send_path_scores(tensors: dict[str, torch.Tensor], result: GenerationBatchResult) -> None:
    """Behind `_pp_prepare_tensor_dict` on the last stage."""
    if getattr(result, "next_path_scores", None) is not None:
        tensors[PATH_SCORES] = result.next_path_scores


def _keep(batch: ScheduleBatch, relayed: RelayedTrees) -> None:
    """Let `batch` carry `relayed`, whose rows are those of the batch that ran: it may have changed since."""
    rids = [req.rid for req in batch.reqs]
    if rids != relayed.rids and isinstance(batch.spec_info, RelayedTrees):
        relayed = batch.spec_info.updated(relayed)
    batch.spec_info = relayed.of(rids)
