"""The tree without draft nodes: what a step of plain decoding verifies, walks and accepts, with nothing to compute."""

from __future__ import annotations

import torch

from sglang.kernels.draft_tree.accept_walk import AcceptedPath
from sglang.kernels.draft_tree.tree_build import DraftTree
from sglang.kernels.draft_tree.tree_layout import TreeLayout


class RootOnly:
    """Trees of one node, on constants that grow with the largest batch seen."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = device
        self._grow(1)

    def tree(self, root_tokens: torch.Tensor) -> DraftTree:
        """`root_tokens` [bs] int64."""
        bs = self._at_least(len(root_tokens))
        zeros = self._zeros[:bs]
        return DraftTree(root_tokens[:, None], self._minus_ones[:bs], zeros, zeros, self._scores[:bs])

    def layout(self, prefix_lens: torch.Tensor) -> TreeLayout:
        """`prefix_lens` [bs] int64, tokens before the root."""
        bs = self._at_least(len(prefix_lens))
        none = self._minus_ones[:bs]
        return TreeLayout(self._trues[:bs], prefix_lens[:, None], none, none)

    def path(self, draws: torch.Tensor) -> AcceptedPath:
        """`draws` [bs, 1] int64: the token after the root, which is emitted whatever it is."""
        bs = self._at_least(len(draws))
        return AcceptedPath(self._zeros[:bs], self._ones[:bs], draws, draws[:, 0])

    def _at_least(self, bs: int) -> int:
        if bs > len(self._zeros):
            self._grow(max(bs, 2 * len(self._zeros)))
        return bs

    def _grow(self, bs: int) -> None:
        self._zeros = torch.zeros((bs, 1), dtype=torch.int64, device=self._device)
        self._minus_ones = torch.full_like(self._zeros, -1)
        self._ones = torch.ones(bs, dtype=torch.int32, device=self._device)
        self._trues = torch.ones((bs, 1, 1), dtype=torch.bool, device=self._device)
        self._scores = torch.zeros((bs, 1), dtype=torch.float32, device=self._device)
