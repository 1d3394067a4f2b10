"""Which worker serves DFLASH: upstream's for a chain, this package's for trees."""

from __future__ import annotations

import functools
from collections.abc import Callable


def serves_trees(create_worker: Callable) -> Callable:
    """Wrap `SpeculativeAlgorithm.create_worker`."""

    @functools.wraps(create_worker)
    def create(self, server_args):
        from sglang.srt.arg_groups.overrides import resolving_view

        worker = create_worker(self, server_args)
        cfg = resolving_view(server_args)
        if self.is_dflash() and cfg.speculative_dflash_widths:
            from sglang.srt.speculative.draft_tree.adaptive_worker import AdaptiveTreeWorker

            return AdaptiveTreeWorker
        if self.is_dflash() and cfg.speculative_dflash_tree_budget:
            from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker

            return DraftTreeWorker
        return worker

    return create
