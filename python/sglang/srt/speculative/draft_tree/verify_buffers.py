"""What the triton backend keeps for the CUDA graphs of a verify: sized by requests, and shared by all widths.

Upstream sizes the slots that attention reads by tokens times context. A verify has several tokens per request, which
read the same slots, so that requests times context is enough. The partial results of split attention are for decoding
alone, one token per request.

Every width has a backend of its own. Forwards of different widths follow each other on one stream, and each writes its
slots and its mask before it reads them, so that all widths can have them in the same place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from sglang.srt.layers.attention.verify_mask import VerifyMask
from sglang.srt.runtime_context import get_spec

if TYPE_CHECKING:
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend


class SharedBuffer:
    """One-dimensional memory that several users have by turns; a greater wish replaces it for later users."""

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None

    def of(self, numel: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
        """[numel] of `dtype`, zero when new."""
        if self._memory is None or self._memory.numel() < numel:
            self._memory = torch.zeros(numel, dtype=dtype, device=device)
        return self._memory[:numel]

    def adopt(self, own: torch.Tensor) -> torch.Tensor:
        """Memory like `own` [numel], which is kept if there is none of its size yet."""
        if self._memory is None or self._memory.numel() < own.numel():
            self._memory = own
        return self._memory[: own.numel()]


class _Shared:
    """Of the target's backends, or of the draft's."""

    def __init__(self) -> None:
        self.kv_indices, self.mask = SharedBuffer(), SharedBuffer()


# By the table of requests, which target and draft have in common, and whether it is the draft.
_shared = WeakTensorKeyDictionary()


def sizes_by_requests(init_cuda_graph_state: Callable) -> Callable:
    """Wrap `TritonAttnBackend.init_cuda_graph_state`: with DFLASH, whose graphs verify, or decode one token."""

    @functools.wraps(init_cuda_graph_state)
    def init(
        self: TritonAttnBackend, max_bs: int, max_num_tokens: int, kv_indices_buf: torch.Tensor | None = None, *rest
    ) -> None:
        # A sliding window has buffers by tokens that a verify does read.
        if get_spec().speculative_algorithm != "DFLASH" or kv_indices_buf is not None or self.sliding_window_size:
            return init_cuda_graph_state(self, max_bs, max_num_tokens, kv_indices_buf, *rest)
        of_target_and_draft: dict[bool, _Shared] = _shared.setdefault(self.req_to_token, {})
        shared = of_target_and_draft.setdefault(bool(self.is_draft_runner), _Shared())
        slots = shared.kv_indices.of(max_bs * self.max_context_len, torch.int64, self.device)
        init_cuda_graph_state(self, max_bs, max_bs, slots, *rest)
        mask = self._verify_mask
        if mask is not None:
            self._verify_mask = VerifyMask(shared.mask.adopt(mask.buffer), mask.mode, mask.max_bs, mask.is_read)

    return init
