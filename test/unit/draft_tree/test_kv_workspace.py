"""Graphs project the draft's KV in memory of their own, which a longer prompt does not take away from them."""

from types import SimpleNamespace

import torch

from sglang.kernels.ops.speculative.fused_kv_materialize import FusedKVMaterializeHelper
from sglang.srt.speculative.draft_tree.kv_workspace import KVWorkspaceOfGraphs

NAMES = ("_proj_workspace", "_k_workspace", "_v_workspace")


def projection() -> FusedKVMaterializeHelper:
    """Upstream's, without its weights."""
    made = object.__new__(FusedKVMaterializeHelper)
    made.n_layers, made.num_kv_heads, made.head_dim, made.layer_out_dim = 2, 1, 4, 8
    made.device, made.flat_kv_weight_t = torch.device("cpu"), torch.zeros(4, 16)
    made._workspace_capacity, made._workspace_dtype = 0, None
    made._proj_workspace = made._k_workspace = made._v_workspace = None
    return made


def addresses(of: FusedKVMaterializeHelper) -> list[int]:
    return [getattr(of, name).data_ptr() for name in NAMES]


def test_graphs_keep_their_memory_when_prompts_need_more():
    of_prompts = projection()
    worker = SimpleNamespace(_fused_kv_helper=of_prompts)
    workspace = KVWorkspaceOfGraphs(worker, 6)
    with workspace.in_use():
        captured = worker._fused_kv_helper
        before = addresses(captured)
        captured._ensure_workspace(6, torch.float32)  # what the largest graph needs is there
        assert captured is not of_prompts and captured.flat_kv_weight_t is of_prompts.flat_kv_weight_t
    assert worker._fused_kv_helper is of_prompts
    of_prompts._ensure_workspace(5, torch.float32)
    of_prompts._ensure_workspace(50, torch.float32)
    with workspace.in_use():
        assert addresses(worker._fused_kv_helper) == before and not set(before) & set(addresses(of_prompts))


def test_a_draft_without_the_fused_projection_has_none():
    worker = SimpleNamespace(_fused_kv_helper=None)
    with KVWorkspaceOfGraphs(worker, 6).in_use():
        assert worker._fused_kv_helper is None
