"""The verify batch of a tree: what attention backends read of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_info import SpecInputType


@dataclass
class DraftTreeVerifyInput(DFlashVerifyInput):
    """One verify of `draft_token_num` nodes a request.

    Its type is upstream's tree verify, so host lengths exclude the nodes and backends expect a mask. `custom_mask` is
    flat, request after request: a row per node, and in it true for each prefix position, then the node's row of the
    ancestor mask. The CPU reference reads `ancestor_mask` [bs, nodes, nodes] instead. `topk` stays 1: it is upstream's
    name for a tree of regular branching, and backends plan for that; `tree_topk` -1 says that the branching is free.
    """

    ancestor_mask: torch.Tensor | None = None
    tree_topk: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.spec_input_type = SpecInputType.EAGLE_VERIFY

    @property
    def max_tree_depth(self) -> int:
        return self.draft_token_num
