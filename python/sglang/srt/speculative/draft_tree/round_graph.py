"""The decode round as two CUDA graphs, around what the host may have to do with the target's logits.

Launched one by one, the operations around the two forwards take the host longer than the device. Upstream's graph of
the verify forward has hooks in front of it and behind it, which hold the first half of the round here; the second half
is a graph beside it:

    head     the draft's forward over `[root, mask, ...]`, its candidates, the tree and its layout, which become the
             inputs of the verify
    verify   upstream's own graph; its tail is an argmax at every node
    commit   the accepted path, the KV rows that move, the draft's KV of what was accepted

Greedy requests that ask for tokens alone replay both in a row. Where requests sample, or their logits are adjusted, the
draws are made between the two, as everywhere else. Batches with a grammar, whose masks are made from the tree while the
verify runs, and batches beyond the graphs take the stages one by one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath, empty_path, walk
from sglang.kernels.draft_tree.stamp import stamp
from sglang.kernels.draft_tree.tree_build import DraftTree, empty_tree
from sglang.kernels.draft_tree.tree_layout import TreeLayout, compile_tree
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.forced_acceptance import forced_length, forced_path, forces_acceptance
from sglang.srt.speculative.draft_tree.lattice import DraftLattice
from sglang.srt.speculative.draft_tree.stage_times import STAGES
from sglang.srt.speculative.draft_tree.verify import DraftTreeVerifyInput, reads_mask_prefix
from sglang.srt.speculative.draft_tree.width_graphs import another_backend, captures, largest_batch
from sglang.srt.speculative.spec_utils import draft_tp_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.model_executor.runner.shape_key import ShapeKey
    from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker, RoundWindow


class RoundGraph:
    """Graphs of rounds of one width, one per batch size that upstream captures.

    Args:
        worker: with backends, upstream's graphs of target and draft, and pools in place.
        width: nodes that a round verifies, root included; at least 2.
    """

    def __init__(self, worker: DraftTreeWorker, width: int) -> None:
        runner = worker.model_runner
        self._worker, self._runner, self.width = worker, runner, width
        self._depth = min(worker.tree.path_length, width)
        self._block = worker.tree.block_size
        max_bs, device = largest_batch(), worker.device
        columns = max(width, self._block)
        # What a replay reads; rows of no request point at the slot that is nobody's.
        self._roots = torch.zeros(max_bs, dtype=torch.int64, device=device)
        self._slots = torch.zeros((max_bs, columns), dtype=torch.int64, device=device)
        self._draft_slots = torch.zeros_like(self._slots)
        self._rows = 0
        self._is_request = torch.zeros(max_bs, dtype=torch.bool, device=device)
        self._forced_length = torch.ones(1, dtype=torch.int64, device=device)
        self._prefix_lens = torch.zeros(max_bs, dtype=torch.int64, device=device)
        # What it leaves.
        self._path = empty_path(max_bs, self._depth, device)
        self.stamps = torch.zeros(1 + len(STAGES), dtype=torch.int64, device=device)  # see StageTimes.add_stamped
        self._figures = worker.no_figures()
        # What the first graph hands to the second.
        self._tree = empty_tree(max_bs, width - 1, device)
        self._positions, self._draws = torch.zeros((2, max_bs, width), dtype=torch.int64, device=device)
        self._path_scores = torch.zeros((max_bs, worker.tree.width), dtype=torch.float32, device=device)
        self._output: LogitsProcessorOutput | None = None
        # In the place of tokens and positions, which the head writes.
        self._nothing = torch.zeros(max_bs * width, dtype=torch.int64, device=device)
        self._backend = another_backend(runner)
        runner_class = self._with_commit(type(runner.decode_cuda_graph_runner))
        with self._hooks():
            self._graphs: DecodeCudaGraphRunner = runner_class(
                runner, attn_backend=self._backend, speculative_num_draft_tokens=width
            )

    @classmethod
    def of(cls, worker: DraftTreeWorker, width: int) -> RoundGraph | None:
        """None where a round cannot be captured.

        That is without graphs, over pipeline stages, with backends that plan on the host, and where the host prepares
        a verify beyond what the head writes: batches of other data-parallel ranks, adapters, positions of pictures,
        what a corrected draft publishes.
        """
        target, draft = worker.model_runner, worker.draft_model_runner
        both_capture = captures(target) and captures(draft)
        plans_on_device = all(isinstance(each.attn_backend, TritonAttnBackend) for each in (target, draft))
        host_prepares = (
            get_parallel().attn_dp_enabled
            or target.lora_manager is not None
            or target.model_config.model_is_mrope
            or worker.lilicorr is not None
        )
        if width == 1 or get_parallel().pp_size > 1 or not both_capture or not plans_on_device or host_prepares:
            return None
        return cls(worker, width)

    @contextlib.contextmanager
    def _hooks(self) -> Iterator[None]:
        heads, tails = self._runner.capture_head_hooks, self._runner.capture_tail_hooks
        heads.append(self._draft_and_build)
        tails.append(self._draw)
        try:
            yield
        finally:
            heads.remove(self._draft_and_build)
            tails.remove(self._draw)

    def _with_commit(self, base: type) -> type:
        """`base`, a class of upstream's decode graph runners, that captures the second graph after each first one."""
        rounds = self

        class RoundGraphRunner(base):
            def capture_one_shape(self, size: int, *args, **kwargs) -> None:
                super().capture_one_shape(size, *args, **kwargs)
                output = rounds._output  # of the capture itself, which came last
                self.backend.capture_one(self.commit_key(size), lambda: rounds._commit(size, output))

            def commit_key(self, size: int) -> ShapeKey:
                return self._make_graph_key(size, variant_label="commit")

        return RoundGraphRunner

    # --- captured --------------------------------------------------------------------------------------------

    def _draft_and_build(self, graphs: DecodeCudaGraphRunner, forward_batch: ForwardBatch) -> None:
        roots, prefix_lens = self._roots[: forward_batch.batch_size], forward_batch.seq_lens
        stamp(self.stamps, 0)
        lattice = self._draft(roots, forward_batch)
        stamp(self.stamps, 1)
        whole = self._worker.best_tree(roots, lattice, self._worker.tree.width, self._forced_length)
        if self._figures is not None:
            is_request = self._is_request[: len(roots), None]
            self._path_scores[: len(roots)].copy_(torch.where(is_request, whole.path_scores, -torch.inf))
        tree = self._tree_of(len(roots))
        for nodes, made in zip(tree, whole, strict=True):
            nodes.copy_(made[:, : self.width])
        mask = self._backend.verify_mask.buffer
        write_prefix = reads_mask_prefix(self._backend)
        layout = compile_tree(tree.parents, tree.depths, prefix_lens, mask, write_prefix=write_prefix)
        self._positions[: len(roots)].copy_(layout.positions)
        forward_batch.input_ids.copy_(tree.tokens.view(-1))
        forward_batch.positions.copy_(layout.positions.view(-1))
        stamp(self.stamps, 2)

    def _draft(self, roots: torch.Tensor, target: ForwardBatch) -> DraftLattice:
        """`DraftTreeWorker.draft` on the rows of `target`, with the draft's attention planned in the graph."""
        worker, runner = self._worker, self._worker.draft_model_runner
        draft_batch = worker.draft_batch(
            roots,
            target.seq_lens,
            req_pool_indices=target.req_pool_indices,
            seq_lens_cpu=target.seq_lens_cpu,
            seq_lens_sum=target.seq_lens_sum,
            orig_seq_lens=target.seq_lens,
            out_cache_loc=self._draft_slots[: len(roots), : self._block].reshape(-1),
            return_logprob=False,
            can_run_decode_cuda_graph=True,
            global_forward_mode=ForwardMode.TARGET_VERIFY,
        )
        runner.kv_index_translator.bind_runner_slots(draft_batch)
        context = ForwardContext(attn_backend=runner.attn_backend)
        with draft_tp_context(worker.draft_parallel_layout), forward_context(context, forward_batch=draft_batch):
            runner.attn_backend.init_forward_metadata_out_graph(draft_batch, in_capture=True)
            output = runner.model.forward(
                draft_batch.input_ids, draft_batch.positions, draft_batch, input_embeds=draft_batch.input_embeds
            )
            return worker.candidates(output.hidden_states, roots)

    def _draw(
        self, graphs: DecodeCudaGraphRunner, output: LogitsProcessorOutput, forward_batch: ForwardBatch, tokens: int
    ) -> None:
        self._output, bs = output, forward_batch.batch_size
        self._draws[:bs].copy_(self._worker.argmax(output.next_token_logits).view(bs, self.width))
        self._prefix_lens[:bs].copy_(forward_batch.seq_lens)
        stamp(self.stamps, 3)

    def _commit(self, bs: int, output: LogitsProcessorOutput) -> None:
        worker, path = self._worker, self._accept(bs)
        if self._figures is not None:
            self._figures.copy_(worker.figures(path, self._path_scores[:bs]))
        stamp(self.stamps, 4)
        worker.kv_moves.to_front(self._slots[:bs, : self.width], path.node_ids)
        hidden = output.hidden_states.view(bs, self.width, -1)
        worker.append_accepted(hidden, path, self._prefix_lens[:bs], self._draft_slots[:bs, : self._depth])
        stamp(self.stamps, 5)

    def _accept(self, bs: int) -> AcceptedPath:
        path, tree, draws = self._path_of(bs), self._tree_of(bs), self._draws[:bs]
        if not forces_acceptance():
            return walk(tree.tokens, tree.parents, draws, self._depth, out=path)
        for rows, forced in zip(path, forced_path(tree, draws, self._depth, self._forced_length), strict=True):
            rows.copy_(forced)
        return path

    def _path_of(self, bs: int) -> AcceptedPath:
        return AcceptedPath(*(field[:bs] for field in self._path))

    def _tree_of(self, bs: int) -> DraftTree:
        return DraftTree(*(nodes[:bs] for nodes in self._tree))

    # --- replayed --------------------------------------------------------------------------------------------

    def serves(self, batch: ScheduleBatch) -> bool:
        return len(batch.reqs) <= self._graphs.max_bs and not batch.has_grammar and not batch.return_hidden_states

    def verify(
        self, batch: ScheduleBatch, roots: torch.Tensor, window: RoundWindow
    ) -> tuple[GenerationBatchResult, ForwardBatch]:
        """Replay draft, tree_build and verify: what the target says at every node, and the verify batch.

        Args:
            batch: a decode batch that `serves` allows; its host lengths bound what is written.
            roots: [bs] int64.
            window: of this width; its slots are planned, and it needs no mask.
        """
        bs = len(batch.reqs)
        self._load(bs, roots, window)
        verify_input = DraftTreeVerifyInput(
            draft_token=self._nothing[: bs * self.width],
            positions=self._nothing[: bs * self.width],
            draft_token_num=self.width,
            custom_mask=self._backend.verify_mask.buffer[:0],  # the graph's own, where the head writes it
            kv_loc_plan=window.plan,
            kv_loc_cols=slice(0, self.width),
        )
        batch.out_cache_loc = window.slots[:, : self.width].reshape(-1)
        with self._in_use():
            forward_batch, _ = verify_input.prepare_for_verify(batch, self._worker.target_worker)
            return self._worker.target_forward(forward_batch), forward_batch

    def verified_trees(self, bs: int) -> tuple[DraftTree, TreeLayout]:
        """The trees [bs, nodes] of the last `verify`, and of their layout the positions; valid until the next one."""
        layout = TreeLayout(ancestor_mask=None, positions=self._positions[:bs], next_child=None, next_sibling=None)
        return self._tree_of(bs), layout

    def draws(self, bs: int) -> torch.Tensor:
        """[bs, nodes] int64: the argmax at every node after `verify`; `commit` accepts by what then stands there."""
        return self._draws[:bs]

    def commit(self, bs: int) -> tuple[AcceptedPath, torch.Tensor | None]:
        """Replay accept and commit: the accepted path [bs, depth], and the worker's figures if it wants any."""
        self._graphs.backend.replay(self._graphs.commit_key(self._graphs.bs), None)
        # The next replay writes over them while the host may still wait for a copy.
        return AcceptedPath(*(field.clone() for field in self._path_of(bs))), self._figures

    def _load(self, bs: int, roots: torch.Tensor, window: RoundWindow) -> None:
        if bs < self._rows:  # what larger batches left would be written to
            self._slots[bs : self._rows].zero_()
            self._draft_slots[bs : self._rows].zero_()
        if bs != self._rows:
            self._is_request.fill_(False)
            self._is_request[:bs].fill_(True)
        self._rows = bs
        self._roots[:bs].copy_(roots)
        if forces_acceptance():
            self._forced_length.fill_(forced_length(self._depth))
        self._slots[:bs].copy_(window.slots)
        draft_slots = self._worker.draft_slots(window, window.slots.shape[1])
        self._draft_slots[:bs].copy_(draft_slots.view(window.slots.shape))

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        runner = self._runner
        kept = runner.attn_backend, runner.decode_cuda_graph_runner
        runner.attn_backend, runner.decode_cuda_graph_runner = self._backend, self._graphs
        try:
            yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = kept
