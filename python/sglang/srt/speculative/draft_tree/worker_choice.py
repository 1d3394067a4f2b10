"""Which worker serves DFLASH: upstream's for a chain, this package's for trees and for pipeline stages."""

from __future__ import annotations

import functools
from collections.abc import Callable


def serves_trees(create_worker: Callable) -> Callable:
    """Wrap `SpeculativeAlgorithm.create_worker`."""

    @functools.wraps(create_worker)
    def create(self, server_args):
        from sglang.srt.arg_groups.overrides import resolving_view

        worker, cfg = create_worker(self, server_args), resolving_view(server_args)
        if not self.is_dflash() or not cfg.speculative_dflash_tree_budget:
            return worker
        if cfg.pp_size > 1:
            from sglang.srt.speculative.draft_tree.pipeline_worker import PipelineDraftTreeWorker

            return PipelineDraftTreeWorker
        if cfg.speculative_dflash_widths:
            from sglang.srt.speculative.draft_tree.adaptive_worker import AdaptiveTreeWorker

            return AdaptiveTreeWorker
        from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker

        return DraftTreeWorker

    return create
