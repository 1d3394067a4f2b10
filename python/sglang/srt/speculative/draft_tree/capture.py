"""Verify batches without contents: what CUDA graphs of the target are captured with, and forwards warmed up with.

Upstream's modules import this one while they are loaded, so the types come late.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang.srt.speculative.draft_tree.config import draft_tree_config

if TYPE_CHECKING:
    import torch

    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.speculative.draft_tree.verify import DraftTreeVerifyInput


def captures_trees(get_spec_info: Callable) -> Callable:
    """Wrap `DecodeCudaGraphRunner.get_spec_info`: the target's verify graphs take a mask where trees are verified."""

    @functools.wraps(get_spec_info)
    def capture(self: DecodeCudaGraphRunner, num_tokens: int):
        if _verifies_trees(self.model_runner.spec_algorithm, self.model_runner.is_draft_worker):
            return _shape_only(self.captured_req_width, self.buffers.custom_mask)
        return get_spec_info(self, num_tokens)

    return capture


def warms_up_trees(create_dummy: Callable) -> Callable:
    """Wrap `create_dummy_verify_input`, the same for forwards that warm up or measure outside of graphs."""

    @functools.wraps(create_dummy)
    def create(spec_algorithm, custom_mask, num_tokens_per_req, is_draft_worker):
        if _verifies_trees(spec_algorithm, is_draft_worker):
            return _shape_only(num_tokens_per_req, custom_mask)
        return create_dummy(spec_algorithm, custom_mask, num_tokens_per_req, is_draft_worker)

    return create


def _verifies_trees(spec_algorithm, is_draft_worker: bool) -> bool:
    return spec_algorithm.is_dflash() and not is_draft_worker and draft_tree_config() is not None


def _shape_only(nodes: int, custom_mask: torch.Tensor) -> DraftTreeVerifyInput:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
    from sglang.srt.speculative.draft_tree.verify import DraftTreeVerifyInput

    return DraftTreeVerifyInput(
        draft_token=None,
        positions=None,
        draft_token_num=nodes,
        custom_mask=custom_mask,
        capture_hidden_mode=CaptureHiddenMode.FULL,
    )
