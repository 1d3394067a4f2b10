"""The verify batch of a tree: what attention backends read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_info import SpecInputType

if TYPE_CHECKING:
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend


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


def reads_mask_prefix(backend: AttentionBackend) -> bool:
    """Whether `backend` reads the prefix columns of the flat mask, and not those of the tree alone.

    Triton's kernel for deterministic inference masks every column; its other one takes the prefix for visible.
    """
    return not isinstance(backend, TritonAttnBackend) or backend.enable_deterministic


def flat_mask(
    backend: AttentionBackend, host_lens: torch.Tensor, width: int, device: torch.device | str
) -> tuple[torch.Tensor, bool]:
    """Where the flat mask of a round goes, and whether the prefix columns of its requests are still to be written.

    The backend's own buffer, where its graphs look; a new one for a batch beyond it, or without graphs. The buffer is
    made for the longest context, and triton copies what it is given: no more than these requests can fill.

    Args:
        backend: of the target.
        host_lens: [bs] int on the host, at least the prefix lengths.
        width: nodes of a request.
        device: of a new mask.
    """
    bs, mask = len(host_lens), backend.verify_mask
    cells = width * (int(host_lens.sum()) + bs * width)
    if mask is None or not mask.fits(bs):
        return torch.ones(cells, dtype=torch.bool, device=device), False
    if not isinstance(backend, TritonAttnBackend):
        return mask.buffer, True
    if reads_mask_prefix(backend):
        # Of a row without a visible slot its kernel makes NaN, and the requests that a graph is padded with have rows
        # behind those of the others.
        padding = (mask.max_bs - bs) * width * (backend.get_cuda_graph_seq_len_fill_value() + width)
        mask.buffer[: cells + padding].fill_(1)
    return mask.buffer[:cells], False
