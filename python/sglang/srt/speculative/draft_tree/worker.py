"""The decode round of draft trees. The package's docstring is its map."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath, walk
from sglang.kernels.draft_tree.kv_compact import gather_accepted
from sglang.kernels.draft_tree.tree_build import DraftTree, build_tree
from sglang.kernels.draft_tree.tree_layout import TreeLayout, compile_tree
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.lora.layers import unwrap_lora_layer
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_observability, get_spec
from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2, _resolve_dflash_embedding_module
from sglang.srt.speculative.draft_tree.config import draft_tree_config
from sglang.srt.speculative.draft_tree.custom_processors import apply_custom_processors
from sglang.srt.speculative.draft_tree.emitted_tokens import remembers_emitted_tokens
from sglang.srt.speculative.draft_tree.forced_acceptance import (
    forced_length,
    forced_path,
    forces_acceptance,
    with_certain_path,
)
from sglang.srt.speculative.draft_tree.kv_moves import KVMoves
from sglang.srt.speculative.draft_tree.kv_workspace import KVWorkspaceOfGraphs
from sglang.srt.speculative.draft_tree.lattice import (
    CapturedLattice,
    DraftLattice,
    HeadCandidates,
    SelectorCandidates,
)
from sglang.srt.speculative.draft_tree.node_adjustments import adjust_node_logits
from sglang.srt.speculative.draft_tree.root_only import RootOnly
from sglang.srt.speculative.draft_tree.round_graph import RoundGraph
from sglang.srt.speculative.draft_tree.round_metrics import RoundMetrics
from sglang.srt.speculative.draft_tree.stage_times import STAGES, StageTimes
from sglang.srt.speculative.draft_tree.target_draw import draw_target_tokens
from sglang.srt.speculative.draft_tree.verify import DraftTreeVerifyInput, flat_mask
from sglang.srt.speculative.draft_tree.width_graphs import captures, captures_width, largest_batch
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from sglang.srt.speculative.spec_utils import GrammarTree, build_grammar_vocab_mask, draft_tp_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.speculative.draft_tree.plain_step_tail import PlainStepTail


class RoundWindow(NamedTuple):
    """Where a round reads and writes: the rows behind each request's committed prefix."""

    prefix_lens: torch.Tensor  # [bs] int64, tokens before the root
    slots: torch.Tensor  # [bs, columns] int64, KV slots of the columns from the root on
    plan: KVLocPlan  # the same slots, as each pool names them
    mask: torch.Tensor | None  # [cells] the flat mask that the attention backend reads; tree_build writes it
    mask_needs_prefix: bool  # whether tree_build writes its prefix columns, too


class Verified(NamedTuple):
    """What the target says at every node."""

    logits: LogitsProcessorOutput
    argmax: torch.Tensor | None  # [bs * nodes] int64 where greedy requests need nothing else
    can_run_graph: bool
    forward_batch: ForwardBatch
    output: GenerationBatchResult


class DraftTreeWorker(DFlashWorkerV2):
    """Upstream's DFLASH worker with a decode round of its own; prefill, weights and the draft's cache are upstream's.

    The draft runs at its block size and the target verifies at the width of a tree. What upstream's worker reads as
    "the number of draft tokens" is the draft's width, so its set-up runs with that in place.
    """

    stages = STAGES
    plain_steps = True  # a round of width 1 is a step of plain decoding, and not a verify of the root alone

    def __init__(self, server_args, gpu_id, nccl_port, target_worker) -> None:
        self.tree = draft_tree_config()
        with self._draft_width():
            super().__init__(server_args, gpu_id, nccl_port, target_worker)
        self.speculative_num_draft_tokens = self.tree.width  # what the metrics report
        self._candidates = None
        self.round_graphs: dict[int, RoundGraph] = {}
        self.plain_step_tail: PlainStepTail | None = None
        self.kv_workspace_of_graphs: KVWorkspaceOfGraphs | None = None
        self._root_only = RootOnly(self.device)
        self._columns = torch.arange(max(self.tree.block_size, self.tree.width), device=self.device)
        self.stage_times = StageTimes(self.device, every=get_observability().decode_log_interval, stages=self.stages)
        self.round_metrics = RoundMetrics(self.tree.path_length, self.stage_times)

    def _draft_width(self) -> contextlib.AbstractContextManager:
        return get_spec().override(speculative_num_draft_tokens=self.tree.block_size)

    # --- set-up, in upstream's order -------------------------------------------------------------------------

    def alloc_memory_pool(self, *args, **kwargs) -> None:
        with self._draft_width():
            super().alloc_memory_pool(*args, **kwargs)

    def init_attention_backends(self) -> None:
        with self._draft_width():
            super().init_attention_backends()

    def init_cuda_graphs(self) -> None:
        with self._draft_width():
            super().init_cuda_graphs()
        if captures(self.model_runner):
            _ = self.kv_moves  # made here, since it copies to the device
            self.kv_workspace_of_graphs = KVWorkspaceOfGraphs(self, largest_batch() * self.tree.path_length)
            with self.kv_workspace_of_graphs.in_use():
                self.round_graphs = self._capture_rounds()

    def _maybe_build_draft_sampler(self) -> CapturedLattice:
        """Tail of the draft graph, in place of upstream's argmax."""
        return CapturedLattice(
            self._draft_candidates(), block_size=self.tree.block_size, max_bs=largest_batch(), device=self.device
        )

    def prewarm_sampling(self):
        """Trees are accepted by draws of the target's own sampler, so its rehearsal is plain decoding's."""
        return self.model_runner.prewarm_sampling()

    def _draft_candidates(self) -> HeadCandidates | SelectorCandidates:
        if self._candidates is None:
            lm_head = unwrap_lora_layer(self.target_worker.model_runner.model.lm_head)
            if self.selector is not None:
                self._candidates = SelectorCandidates(self.draft_model, lm_head)
            else:
                self._candidates = HeadCandidates(lm_head, self.tree.topk)
        return self._candidates

    # --- the round -------------------------------------------------------------------------------------------

    def forward_batch_generation(
        self,
        batch: ScheduleBatch,
        on_publish: Callable | None = None,
        grammar_barrier: Callable | None = None,
        pp_proxy_tensors=None,
    ) -> GenerationBatchResult:
        if not decodes(batch):
            return super().forward_batch_generation(batch, on_publish, grammar_barrier, pp_proxy_tensors)
        return self._decode(batch, on_publish, grammar_barrier)

    @remembers_emitted_tokens
    def _decode(
        self, batch: ScheduleBatch, on_publish: Callable | None, grammar_barrier: Callable | None
    ) -> GenerationBatchResult:
        draft_input: DFlashDraftInputV2 = batch.spec_info
        width = self.round_width(len(batch.reqs))
        round_graph = self.round_graphs.get(width)
        if round_graph is not None and round_graph.serves(batch):
            return self._replay(batch, draft_input, round_graph, on_publish)
        self.stage_times.start()
        window = self.open_window(batch, draft_input, width)
        lattice = self.draft(batch, draft_input, window) if width > 1 else None
        self.stage_times.end_of_stage()
        tree, layout = self.tree_build(draft_input.bonus_tokens, lattice, window, width)
        self.stage_times.end_of_stage()
        grammar_tree = self.grammar_tree(batch, tree, layout)  # its copy to the host must precede the verify
        verified = self.verify(batch, draft_input, window, tree, layout)
        self.stage_times.end_of_stage()
        draws = self.target_draws(batch, window, tree, layout, verified, grammar_tree, grammar_barrier)
        path = self.accept(tree, draws)
        self.stage_times.end_of_stage()
        result = self.commit(batch, window, verified, draws, path, on_publish)
        self.stage_times.end_of_stage()
        self.round_metrics.verified(len(batch.reqs), width)
        return result

    def _capture_rounds(self) -> dict[int, RoundGraph]:
        """Graphs of whole rounds, by width, as far as they can be captured."""
        captured = {}
        for width in self.tree.widths:
            with captures_width(width, self.tree.widths):
                graph = RoundGraph.of(self, width)
            if graph is not None:
                captured[width] = graph
        return captured

    def _replay(
        self,
        batch: ScheduleBatch,
        draft_input: DFlashDraftInputV2,
        graph: RoundGraph,
        on_publish: Callable | None,
    ) -> GenerationBatchResult:
        """The same round, as two graphs."""
        bs = len(batch.reqs)
        window = self.open_window(batch, draft_input, graph.width, masks=False)
        with _bounded_host_lens(batch, draft_input):
            output, forward_batch = graph.verify(batch, draft_input.bonus_tokens, window)
        logits, draws = output.logits_output, graph.draws(bs)
        if self._can_skip_verify_logits(batch, batch.sampling_info):
            self._tp_sync.sync(SpecTpSyncSite.DFLASH_ACCEPT_GREEDY, draws)
        else:
            verified = self._verified(batch, forward_batch, output)
            tree, layout = graph.verified_trees(bs)
            draws.copy_(self.target_draws(batch, window, tree, layout, verified, None, None))
        path, figures = graph.commit(bs)
        self._add_logprobs(batch, logits, draws, path)
        new_seq_lens = window.prefix_lens + path.length
        if on_publish is not None:
            on_publish(new_seq_lens)
        self.stage_times.add_stamped(graph.stamps)
        self.replayed(figures, graph.width)
        self.round_metrics.verified(bs, graph.width)
        logits.hidden_states = None
        return self._result(logits, graph.width, path, new_seq_lens, forward_batch, can_run_cuda_graph=True)

    def _result(
        self,
        logits: LogitsProcessorOutput,
        width: int,
        path: AcceptedPath,
        new_seq_lens: torch.Tensor,
        forward_batch: ForwardBatch,
        **more,
    ) -> GenerationBatchResult:
        """What a round hands to the scheduler; `more` are further fields."""
        return GenerationBatchResult(
            logits_output=logits,
            next_token_ids=path.tokens.view(-1),
            accept_lens=path.length,
            next_draft_input=self._make_next_draft_input_decode(bonus_tokens=path.bonus, new_seq_lens=new_seq_lens),
            speculative_num_draft_tokens=width,
            speculative_output_stride=path.tokens.shape[1],
            new_seq_lens=new_seq_lens,
            extra_keep_alive_refs=[forward_batch],
            **more,
        )

    @staticmethod
    def _add_logprobs(
        batch: ScheduleBatch, logits: LogitsProcessorOutput, draws: torch.Tensor, path: AcceptedPath
    ) -> None:
        """Where requests ask for them: of every emitted token, from the node that it was drawn at."""
        if not batch.return_logprob:
            return
        bs, width = draws.shape
        first_row = torch.arange(bs, device=draws.device)[:, None] * width
        rows = path.node_ids.clamp(min=0) + first_row
        compute_spec_logprobs(batch, logits, draws.reshape(-1), accept_index=rows)

    def no_figures(self) -> torch.Tensor | None:
        """Where graphs of rounds put `figures`; None if nobody wants any."""
        return None

    def figures(self, path: AcceptedPath, path_scores: torch.Tensor) -> torch.Tensor:
        """What is to be known of a round's whole trees, `path_scores` [bs, nodes], all -inf behind the root of a row
        that is no request's; captured where `no_figures` gives a place."""
        raise NotImplementedError

    def replayed(self, figures: torch.Tensor | None, width: int) -> None:
        """A round went by as graphs; its `figures` are valid until the next one."""

    def round_width(self, bs: int) -> int:
        """Nodes of a request that this round verifies; 1 is a step of plain decoding, for which nothing is drafted."""
        return self.tree.width

    def open_window(
        self,
        batch: ScheduleBatch,
        draft_input: DFlashDraftInputV2,
        width: int,
        *,
        drafts: bool = True,
        masks: bool = True,
    ) -> RoundWindow:
        """The columns that draft and verify write, planned once; those of the verify alone unless it `drafts`.

        Without `masks` there is none to write, as for a graph that fills its own.
        """
        prefix_lens = batch.seq_lens
        if prefix_lens.is_cuda:  # made by the last round, perhaps on another stream
            prefix_lens.record_stream(torch.get_device_module(self.device).current_stream())
        req_to_token = self.model_runner.req_to_token_pool.req_to_token
        columns = self._columns[: max(width, self.tree.block_size) if drafts and width > 1 else width]
        slots = req_to_token[batch.req_pool_indices[:, None], prefix_lens[:, None] + columns].to(torch.int64)
        host_lens = self._host_lens(batch, draft_input, 0)
        plan = self.target_worker.model_runner.kv_index_translator.plan(
            req_pool_indices=batch.req_pool_indices,
            seq_lens=prefix_lens,
            seq_lens_cpu=host_lens,
            write_virtual=slots.reshape(-1),
            read_extent=len(columns),
        )
        return RoundWindow(prefix_lens, slots, plan, *(self._flat_mask(host_lens, width) if masks else (None, False)))

    def draft(self, batch: ScheduleBatch, draft_input: DFlashDraftInputV2, window: RoundWindow) -> DraftLattice:
        """One forward of the draft over `[root, mask, ...]`: the candidates of each depth."""
        bs, block_size = len(window.prefix_lens), self.tree.block_size
        host_lens = self._host_lens(batch, draft_input, block_size)
        forward_batch = self.draft_batch(
            draft_input.bonus_tokens,
            window.prefix_lens,
            req_pool_indices=batch.req_pool_indices,
            out_cache_loc=window.slots[:, :block_size].reshape(-1),
            seq_lens_sum=int(host_lens.sum()),
            seq_lens_cpu=host_lens,
            global_num_token_non_padded_cpu=bs * block_size,
            can_run_decode_cuda_graph=batch.can_run_decode_cuda_graph,
        )
        window.plan.bind(forward_batch, self.draft_model_runner.kv_index_translator, cols=slice(0, block_size))
        with torch.inference_mode(), draft_tp_context(self.draft_parallel_layout):
            output = self.draft_model_runner.forward(forward_batch)
            if self._draft_sampler is not None and output.can_run_graph:
                return self._draft_sampler.lattice(bs)
            return self.candidates(output.logits_output.hidden_states, draft_input.bonus_tokens)

    def draft_batch(self, root_tokens: torch.Tensor, prefix_lens: torch.Tensor, **more) -> ForwardBatch:
        """The draft's forward over `[root, mask, ...]` of each request; `more` are further fields, such as its rows.

        Args:
            root_tokens: [bs] int64.
            prefix_lens: [bs] int64.
        """
        bs, block_size = len(root_tokens), self.tree.block_size
        block_ids = torch.full((bs, block_size), int(self._mask_token_id), dtype=torch.int64, device=self.device)
        block_ids[:, 0] = root_tokens
        target_model = self.target_worker.model_runner.model
        embed = unwrap_lora_layer(_resolve_dflash_embedding_module(self.draft_model, target_model))
        input_embeds = embed(block_ids)
        if self._noise_embed_scale != 1.0:
            input_embeds = input_embeds * self._noise_embed_scale
        return ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=bs,
            input_ids=block_ids.view(-1),
            input_embeds=input_embeds.view(bs * block_size, -1),
            seq_lens=prefix_lens,
            positions=(prefix_lens[:, None] + self._block_pos_offsets).view(-1),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            **more,
        )

    def candidates(self, hidden_states: torch.Tensor, root_tokens: torch.Tensor) -> DraftLattice:
        """The lattice of a draft's forward: `hidden_states` [bs * block, hidden] at the positions of its batch."""
        hidden = hidden_states.view(len(root_tokens), self.tree.block_size, -1)
        return self._draft_candidates()(hidden[:, 1:], root_tokens)

    def tree_build(
        self, root_tokens: torch.Tensor, lattice: DraftLattice | None, window: RoundWindow, width: int
    ) -> tuple[DraftTree, TreeLayout]:
        """The best nodes for this width, and what the verify forward needs to know of their shape."""
        if lattice is None:
            return self._root_only.tree(root_tokens), self._root_only.layout(window.prefix_lens)
        tree = self.best_tree(root_tokens, lattice, width)
        layout = compile_tree(
            tree.parents, tree.depths, window.prefix_lens, window.mask, write_prefix=window.mask_needs_prefix
        )
        return tree, layout

    def best_tree(
        self, root_tokens: torch.Tensor, lattice: DraftLattice, width: int, forced: torch.Tensor | None = None
    ) -> DraftTree:
        """The best `width` nodes; `forced` is the length of `with_certain_path` where acceptance is forced."""
        if forces_acceptance():
            lattice = with_certain_path(lattice, forced)
        return self.build_nodes(root_tokens, lattice, width)

    def build_nodes(self, root_tokens: torch.Tensor, lattice: DraftLattice, width: int) -> DraftTree:
        return build_tree(root_tokens, lattice.token_ids, lattice.scores, width - 1, lattice.pair_scores)

    def grammar_tree(self, batch: ScheduleBatch, tree: DraftTree, layout: TreeLayout) -> GrammarTree | None:
        if not batch.has_grammar:
            return None
        return GrammarTree.from_device(layout.next_child, layout.next_sibling, tree.tokens)

    def verify(
        self,
        batch: ScheduleBatch,
        draft_input: DFlashDraftInputV2,
        window: RoundWindow,
        tree: DraftTree,
        layout: TreeLayout,
    ) -> Verified:
        """One forward of the target over all nodes."""
        width = tree.tokens.shape[1]
        if width == 1 and self.plain_steps:
            return self.plain_step(batch, draft_input, window)
        verify_input = self.verify_input(window, tree, layout)
        batch.out_cache_loc = window.slots[:, :width].reshape(-1)
        with _bounded_host_lens(batch, draft_input):
            forward_batch, _ = verify_input.prepare_for_verify(batch, self.target_worker)
        return self._verified(batch, forward_batch, self.target_forward(forward_batch))

    def plain_step(self, batch: ScheduleBatch, draft_input: DFlashDraftInputV2, window: RoundWindow) -> Verified:
        """A decode step of the target, as without speculation, but for the hidden states that the draft reads."""
        batch.input_ids = draft_input.bonus_tokens
        batch.spec_info, batch.forward_mode = None, ForwardMode.DECODE
        batch.out_cache_loc = window.slots[:, 0].contiguous()
        batch.seq_lens = window.prefix_lens + 1  # decoding counts the token that it writes
        if self.plain_step_tail is not None:
            self.plain_step_tail.load(self.draft_slots(window, 1).view(-1))
        with _bounded_host_lens(batch, draft_input, ahead=1):
            forward_batch = ForwardBatch.init_new(
                batch,
                self.model_runner,
                capture_hidden_mode=CaptureHiddenMode.FULL,
                return_hidden_states_before_norm=False,
            )
        batch.seq_lens = window.prefix_lens
        output = self.target_worker.forward_batch_generation(batch=None, forward_batch=forward_batch, is_verify=True)
        return self._verified(batch, forward_batch, output)

    def _verified(self, batch: ScheduleBatch, forward_batch: ForwardBatch, output: GenerationBatchResult) -> Verified:
        logits, argmax = output.logits_output, None
        if self._is_deferred(logits.next_token_logits):
            if self._can_skip_verify_logits(batch, batch.sampling_info):
                argmax = self.argmax(logits.next_token_logits)
                logits.next_token_logits = None
            else:
                logits.next_token_logits = self._target_logits_processor.finish_deferred_gather(
                    logits.next_token_logits
                )
        return Verified(logits, argmax, output.can_run_cuda_graph, forward_batch, output)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """[rows] int64, over the whole vocabulary, of a verify's `logits`: [rows, vocabulary], or this rank's share."""
        if self._is_deferred(logits):
            return self._target_logits_processor.deferred_argmax(logits)
        return logits.argmax(dim=-1)

    def _is_deferred(self, logits: torch.Tensor) -> bool:
        processor = self._target_logits_processor
        return processor is not None and processor.is_deferred_shard(logits)

    def verify_input(
        self,
        window: RoundWindow,
        tree: DraftTree,
        layout: TreeLayout,
        kind: type[DraftTreeVerifyInput] = DraftTreeVerifyInput,
    ) -> DraftTreeVerifyInput:
        width = tree.tokens.shape[1]
        return kind(
            draft_token=tree.tokens.view(-1),
            positions=layout.positions.view(-1),
            draft_token_num=width,
            custom_mask=window.mask,
            ancestor_mask=layout.ancestor_mask,
            kv_loc_plan=window.plan,
            kv_loc_cols=slice(0, width),
        )

    def target_forward(self, forward_batch: ForwardBatch) -> GenerationBatchResult:
        return self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )

    def target_draws(
        self,
        batch: ScheduleBatch,
        window: RoundWindow,
        tree: DraftTree,
        layout: TreeLayout,
        verified: Verified,
        grammar_tree: GrammarTree | None,
        grammar_barrier: Callable | None,
    ) -> torch.Tensor:
        """[bs, nodes]: the token that plain decoding would emit at every node, the same on all ranks."""
        if verified.argmax is not None:
            draws = verified.argmax.view_as(tree.tokens)
            self._tp_sync.sync(SpecTpSyncSite.DFLASH_ACCEPT_GREEDY, draws)
            return draws
        logits, sampling_info = verified.logits.next_token_logits, batch.sampling_info
        grammar_mask = None
        if grammar_tree is not None:
            grammar_mask = build_grammar_vocab_mask(
                reqs=batch.reqs,
                tree=grammar_tree,
                sampling_info=sampling_info,
                device=logits.device,
                barrier=grammar_barrier,
            )
        if sampling_info is not None:
            adjust_node_logits(logits, tree.tokens, tree.parents, sampling_info)
        if grammar_mask is not None:
            grammar_mask.apply(logits)
        if sampling_info is not None and sampling_info.has_custom_logit_processor:
            apply_custom_processors(logits, tree.tokens, tree.parents, window.prefix_lens, sampling_info)
        if sampling_info is None or sampling_info.is_all_greedy:
            draws, site = logits.argmax(dim=-1).view_as(tree.tokens), SpecTpSyncSite.DFLASH_ACCEPT_GREEDY
        else:
            sampler = self.target_worker.model_runner.sampler
            draws = draw_target_tokens(sampler, logits, sampling_info, layout.positions)
            site = SpecTpSyncSite.DFLASH_ACCEPT_SAMPLE
        self._tp_sync.sync(site, draws)
        return draws

    def accept(self, tree: DraftTree, draws: torch.Tensor) -> AcceptedPath:
        """The nodes that carry the target's own tokens, from the root down."""
        width = tree.tokens.shape[1]
        if width == 1:
            return self._root_only.path(draws)
        depth = min(self.tree.path_length, width)
        if forces_acceptance():
            return forced_path(tree, draws, depth, forced_length(depth))
        return walk(tree.tokens, tree.parents, draws, depth)

    def commit(
        self,
        batch: ScheduleBatch,
        window: RoundWindow,
        verified: Verified,
        draws: torch.Tensor,
        path: AcceptedPath,
        on_publish: Callable | None,
    ) -> GenerationBatchResult:
        """The accepted path becomes the prefix: its KV rows to the front, its hidden states into the draft's cache."""
        (bs, width), depth, logits = draws.shape, path.tokens.shape[1], verified.logits
        self._add_logprobs(batch, logits, draws, path)

        if width > 1:
            self.kv_moves.to_front(window.slots[:, :width], path.node_ids)
        new_seq_lens = window.prefix_lens + path.length
        if on_publish is not None:
            on_publish(new_seq_lens)  # only now: the rows that it frees are those that the moves have read

        written_by_the_graph = width == 1 and verified.can_run_graph and self.plain_step_tail is not None
        if not written_by_the_graph:
            hidden = logits.hidden_states.view(bs, width, -1)
            self.append_accepted(hidden, path, window.prefix_lens, self.draft_slots(window, depth))
        logits.hidden_states = None  # large, and nobody on the host reads it
        return self._result(
            logits,
            width,
            path,
            new_seq_lens,
            verified.forward_batch,
            can_run_cuda_graph=verified.can_run_graph,
            routed_experts_output=verified.output.routed_experts_output,
            indexer_topk_output=verified.output.indexer_topk_output,
        )

    @functools.cached_property
    def kv_moves(self) -> KVMoves:
        """Of the target's pool; first asked for outside of graph captures."""
        return KVMoves(self.model_runner.token_to_kv_pool_allocator.get_kvcache())

    def append_accepted(
        self, hidden: torch.Tensor, path: AcceptedPath, prefix_lens: torch.Tensor, draft_slots: torch.Tensor
    ) -> None:
        """The draft's KV of the accepted nodes.

        Args:
            hidden: [bs, nodes, captured hidden sizes], the target's states at every node.
            prefix_lens: [bs] int64.
            draft_slots: [bs * depth] int64 in any shape, the rows of the draft's pool behind each prefix.
        """
        (bs, width, _), depth = hidden.shape, path.tokens.shape[1]
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=(gather_accepted(hidden, path.node_ids) if width > 1 else hidden).view(bs * depth, -1),
            cache_loc=draft_slots.reshape(-1),
            cache_loc_2d=draft_slots.reshape(bs, depth),
            positions=(prefix_lens[:, None] + self._block_pos_offsets[:depth]).view(-1),
            commit_lens=path.length,
        )

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        """Called by the scheduler once a round's accept lengths are on the host."""
        self.round_metrics.count(num_correct_drafts_per_req)

    # --- helpers ---------------------------------------------------------------------------------------------

    def draft_slots(self, window: RoundWindow, columns: int) -> torch.Tensor:
        """[bs * columns] int64: where the draft's pool keeps the columns from the root on."""
        return window.plan.write_ids(self.draft_model_runner.kv_index_translator, cols=slice(0, columns))

    def _host_lens(self, batch: ScheduleBatch, draft_input: DFlashDraftInputV2, ahead: int) -> torch.Tensor:
        """[bs] int on the host: at least the prefix plus `ahead` rows, which is all that planning needs."""
        if batch.seq_lens_cpu is not None:
            return batch.seq_lens_cpu + ahead
        if draft_input.nxt_kv_lens_cpu is not None:
            return draft_input.nxt_kv_lens_cpu
        return torch.tensor([req.kv.kv_allocated_len for req in batch.reqs], dtype=torch.int64)

    def _flat_mask(self, host_lens: torch.Tensor, width: int) -> tuple[torch.Tensor | None, bool]:
        backend = self.target_worker.model_runner.attn_backend
        if (width == 1 and self.plain_steps) or getattr(backend, "reads_ancestor_mask", False):
            return None, False
        return flat_mask(backend, host_lens, width, self.device)


def decodes(batch: ScheduleBatch) -> bool:
    """Whether a forward of `batch` is a decode round."""
    return not (batch.forward_mode.is_extend() or batch.is_extend_in_batch or batch.forward_mode.is_idle())


@contextlib.contextmanager
def _bounded_host_lens(batch: ScheduleBatch, draft_input: DFlashDraftInputV2, ahead: int = 0) -> Iterator[None]:
    """Host lengths of `batch` for one forward that counts `ahead` rows beyond the prefix.

    Where the scheduler keeps none, nobody reads exact ones; a bound spares a buffer for the longest possible context.
    """
    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    if batch.seq_lens_cpu is not None:
        batch.seq_lens_cpu, batch.seq_lens_sum = batch.seq_lens_cpu + ahead, None
    elif draft_input.nxt_kv_lens_cpu is not None:
        batch.seq_lens_cpu, batch.seq_lens_sum = draft_input.nxt_kv_lens_cpu, int(draft_input.nxt_kv_lens_sum)
    try:
        yield
    finally:
        batch.seq_lens_cpu, batch.seq_lens_sum = kept
