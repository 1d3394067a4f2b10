"""Memory in which CUDA graphs project the draft's KV, apart from that of prompts.

Upstream's fused projection keeps its intermediate results in memory that it replaces when a prompt is longer than all
before. A graph goes on with the address that it was captured with, which by then may be somebody else's.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang.kernels.ops.speculative.fused_kv_materialize import FusedKVMaterializeHelper
    from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker


class KVWorkspaceOfGraphs:
    """The memory of all graphs of one worker: they replay one after the other on one stream.

    Args:
        worker: with upstream's projection in place, if it has one.
        rows: tokens of the largest graph.
    """

    def __init__(self, worker: DraftTreeWorker, rows: int) -> None:
        self._worker = worker
        self._projection: FusedKVMaterializeHelper | None = copy.copy(worker._fused_kv_helper)  # the same weights
        if self._projection is not None:
            self._projection._workspace_capacity = 0  # of exactly as many rows as are asked for, and never more
            self._projection._ensure_workspace(rows, self._projection.flat_kv_weight_t.dtype)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Graphs that are captured within project in this memory."""
        of_prompts, self._worker._fused_kv_helper = self._worker._fused_kv_helper, self._projection
        try:
            yield
        finally:
            self._worker._fused_kv_helper = of_prompts
