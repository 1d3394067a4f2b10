"""The draft's KV of a plain step, written at the end of the step's own CUDA graph.

A step of plain decoding keeps the draft's cache current, so that drafts can return with the next round. What it adds
depends on the step's input alone, not on the token that is drawn, so the graph of the step can end with it, and a
server that speculates decodes plainly with as many launches as one that never does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker


class PlainStepTail:
    """What a graph of a plain step reads besides the step's own inputs: where the draft's rows go.

    Args:
        worker: whose draft it is.
        max_bs: rows of the largest graph.
    """

    def __init__(self, worker: DraftTreeWorker, max_bs: int) -> None:
        self._worker = worker
        self._slots = torch.zeros(max_bs, dtype=torch.int64, device=worker.device)  # 0 is nobody's
        self._one = torch.ones(max_bs, dtype=torch.int32, device=worker.device)
        self._rows = 0

    @contextlib.contextmanager
    def captured(self, runner: ModelRunner) -> Iterator[None]:
        """Graphs of `runner` that are captured within end with the draft's KV."""
        runner.capture_tail_hooks.append(self._write)
        try:
            with self._worker.kv_workspace_of_graphs.in_use():
                yield
        finally:
            runner.capture_tail_hooks.remove(self._write)

    def load(self, slots: torch.Tensor) -> None:
        """Before a step: `slots` [bs] int64, the rows of the draft's pool that its tokens get."""
        bs = len(slots)
        if bs > len(self._slots):  # a batch beyond the graphs, whose rows are written as without them
            return
        if bs < self._rows:  # what a larger batch left would be written to by the rows that fill up a graph
            self._slots[bs : self._rows].zero_()
        self._rows = bs
        self._slots[:bs].copy_(slots)

    def _write(
        self, graphs: DecodeCudaGraphRunner, output: LogitsProcessorOutput, forward_batch: ForwardBatch, tokens: int
    ) -> None:
        bs = forward_batch.batch_size
        slots = self._slots[:bs]
        self._worker._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=output.hidden_states.view(bs, -1),
            cache_loc=slots,
            cache_loc_2d=slots.view(bs, 1),
            positions=forward_batch.positions[:bs].to(torch.int64),
            commit_lens=self._one[:bs],
        )
