"""The trees of the next round, on their way from the last pipeline stage to all stages.

The last stage drafts at the end of a round and sends the trees with the round's outputs. Every stage keeps them with
its copy of the batch until the next round verifies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2
from sglang.srt.speculative.spec_info import SpecInput, SpecInputType

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch


class Trees(NamedTuple):
    """What a stage needs to know of draft trees to verify them; fields as in DraftTree."""

    tokens: torch.Tensor  # [bs, nodes] int64; node 0 is the root
    parents: torch.Tensor  # [bs, nodes] int64, -1 for the root and padding
    depths: torch.Tensor  # [bs, nodes] int64, 0 for the root and padding


_PADDING = Trees(tokens=0, parents=-1, depths=0)


class RelayedTrees(SpecInput):
    """The trees of a micro-batch, a row for each request of `rids`; rows follow requests through filter and merge.

    Requests of one batch may have trees of different width: the narrower ones are padded with nodes that are nobody's
    ancestor and never accepted.
    """

    def __init__(self, rids: list[str], trees: Trees) -> None:
        super().__init__(SpecInputType.PP_SPEC_RELAY)
        self.rids = rids
        self.trees = trees

    @classmethod
    def of_roots(cls, rids: list[str], tokens: torch.Tensor) -> RelayedTrees:
        """Trees without draft nodes, which requests have after their prompt; `tokens` [bs, nodes], the first a root."""
        return cls(rids, Trees(tokens, torch.full_like(tokens, -1), torch.zeros_like(tokens)))

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """Reserve the KV slots of a round, as DFLASH does without stages."""
        DFlashDraftInputV2.create_idle_input(device=batch.device).prepare_for_decode(batch)

    def filter_batch(self, new_indices: torch.Tensor, new_indices_cpu: list[int] | None = None) -> None:
        kept = new_indices.tolist() if new_indices_cpu is None else new_indices_cpu
        self.rids = [self.rids[row] for row in kept]
        self.trees = Trees(*(field[new_indices] for field in self.trees))

    def merge_batch(self, other: RelayedTrees) -> None:
        nodes = max(self.trees.tokens.shape[1], other.trees.tokens.shape[1])
        both = zip(self.trees, other.trees, _PADDING, strict=True)
        self.trees = Trees(*(torch.cat([_padded(a, nodes, value), _padded(b, nodes, value)]) for a, b, value in both))
        self.rids = self.rids + other.rids

    def updated(self, relayed: RelayedTrees) -> RelayedTrees:
        """These requests with their rows of `relayed`, where it has one."""
        both = RelayedTrees(self.rids, self.trees)
        both.merge_batch(relayed)
        return both.of(self.rids)

    def of(self, rids: list[str]) -> RelayedTrees:
        """The rows of `rids`, in that order; of two rows of a request the later. KeyError for one without a row."""
        if rids == self.rids:
            return self
        row_of = {rid: row for row, rid in enumerate(self.rids)}
        rows = torch.tensor([row_of[rid] for rid in rids], dtype=torch.int64, device=self.trees.tokens.device)
        return RelayedTrees(rids, Trees(*(field[rows] for field in self.trees)))


def _padded(rows: torch.Tensor, nodes: int, value: int) -> torch.Tensor:
    return torch.nn.functional.pad(rows, (0, nodes - rows.shape[1]), value=value)
