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
    path_scores: torch.Tensor  # [bs, nodes] float32, 0 for the root, -inf for padding

    def of_width(self, nodes: int) -> Trees:
        """The first `nodes` nodes, which are the tree of a smaller budget, or as many with padding."""
        return Trees(*(_of_width(field, nodes, value) for field, value in zip(self, _PADDING, strict=True)))


_PADDING = Trees(tokens=0, parents=-1, depths=0, path_scores=float("-inf"))


class RelayedTrees(SpecInput):
    """The trees of a micro-batch, a row for each request of `rids`; rows follow requests through filter and merge.

    Requests of one batch may have trees of different width: the narrower ones are padded with nodes that are nobody's
    ancestor and never accepted.
    """

    def __init__(self, rids: list[str], trees: Trees) -> None:
        super().__init__(SpecInputType.PP_SPEC_RELAY)
        self.rids = rids
        self.trees = trees

    @property
    def has_drafts(self) -> bool:
        """False where every tree is its root, as far as the shape tells."""
        return self.trees.tokens.shape[1] > 1

    @classmethod
    def of_roots(cls, rids: list[str], tokens: torch.Tensor) -> RelayedTrees:
        """Trees without draft nodes, which requests have after their prompt; `tokens` [bs] int64."""
        return cls(rids, roots(tokens))

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """Reserve the KV slots of a round, as DFLASH does without stages."""
        DFlashDraftInputV2.create_idle_input(device=batch.device).prepare_for_decode(batch)

    def filter_batch(self, new_indices: torch.Tensor, new_indices_cpu: list[int] | None = None) -> None:
        kept = new_indices.tolist() if new_indices_cpu is None else new_indices_cpu
        self.rids = [self.rids[row] for row in kept]
        self.trees = Trees(*(field[new_indices] for field in self.trees))

    def merge_batch(self, other: RelayedTrees) -> None:
        nodes = max(self.trees.tokens.shape[1], other.trees.tokens.shape[1])
        both = zip(self.trees.of_width(nodes), other.trees.of_width(nodes), strict=True)
        self.trees = Trees(*(torch.cat(pair) for pair in both))
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


def roots(tokens: torch.Tensor) -> Trees:
    """The trees of `tokens` [bs] int64 alone."""
    root = tokens[:, None]
    return Trees(root, torch.full_like(root, -1), torch.zeros_like(root), torch.zeros_like(root, dtype=torch.float32))


def _of_width(rows: torch.Tensor, nodes: int, value: float) -> torch.Tensor:
    if rows.shape[1] >= nodes:
        return rows[:, :nodes].contiguous()
    return torch.nn.functional.pad(rows, (0, nodes - rows.shape[1]), value=value)
