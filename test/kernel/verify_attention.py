"""Triton's attention over trees, with the mask that a round leaves it, against attention written out.

The backend is upstream's, and its kernel upstream's or ours. Which columns of the mask that reads decides what a round
must write.
`small_verifies` runs under Triton's interpreter on a CPU; the test marked `gpu` does the same on a GPU.
"""

import os
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import torch

from sglang.kernels.draft_tree.tree_layout import compile_tree
from sglang.kernels.ops.attention.extend_attention import (
    build_unified_kv_indices,
    extend_attention_fwd,
    extend_attention_fwd_unified,
)
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.attention.verify_mask import maybe_create_verify_mask
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.draft_tree.verify import flat_mask
from sglang.srt.speculative.draft_tree.verify_kernel import KERNELS, VARIABLE

from .lattices import random_parents

HEADS, HEAD_DIM, CONTEXT = 2, 16, 100
PREFIX_LENS = (5, 70, 1)  # one of them longer than a block of the kernels; the last is a graph's padding


def compare_verify(device: str, nodes: int, *, deterministic: bool) -> None:
    """The buffer of the mask is all false before: whatever a round must write and does not, shows."""
    rng = np.random.default_rng([nodes, deterministic])
    bs, lens = len(PREFIX_LENS), torch.tensor(PREFIX_LENS)
    slots = torch.from_numpy(rng.permutation(int(lens.sum()) + bs * nodes)).to(device)
    of_prefix, of_nodes = slots[: -bs * nodes], slots[-bs * nodes :]

    def draw(rows: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=(rows, HEADS, HEAD_DIM)).astype(np.float32)).to(device)

    queries, keys, values = draw(bs * nodes), draw(len(slots)), draw(len(slots))
    backend = _backend(keys, values, lens.to(device), of_prefix, nodes, deterministic)
    mask, write_prefix = flat_mask(backend, lens[:-1], nodes, device)
    parents, depths = (value.to(device) for value in random_parents(rng, bs - 1, nodes))
    layout = compile_tree(parents, depths, lens[:-1].to(device), mask, write_prefix=write_prefix)
    batch = SimpleNamespace(
        batch_size=bs, forward_mode=ForwardMode.TARGET_VERIFY, seq_lens=lens.to(device), out_cache_loc=of_nodes,
        extend_seq_lens=None, extend_start_loc=None, extend_prefix_lens=None, extend_seq_lens_cpu=None,
        mha_one_shot=False,
    )  # fmt: skip
    layer = SimpleNamespace(
        layer_id=0, tp_q_head_num=HEADS, qk_head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, scaling=HEAD_DIM**-0.5,
        logit_cap=0.0, logit_capping_method="tanh", attn_type=AttentionType.DECODER, is_cross_attention=False,
        sliding_window_size=-1, k_scale=None, v_scale=None, xai_temperature_len=-1,
    )  # fmt: skip
    new = keys[of_nodes], values[of_nodes]
    found = backend.forward_extend(queries.view(bs * nodes, -1), *new, layer, batch, save_kv_cache=False)
    assert found.isfinite().all()

    for row, prefix in enumerate(of_prefix.split(list(PREFIX_LENS))[:-1]):
        visible = torch.cat([prefix, of_nodes.view(bs, nodes)[row]])
        expected = torch.nn.functional.scaled_dot_product_attention(
            queries.view(bs, nodes, HEADS, HEAD_DIM)[row].transpose(0, 1),
            keys[visible].transpose(0, 1),
            values[visible].transpose(0, 1),
            attn_mask=torch.nn.functional.pad(layout.ancestor_mask[row], (len(prefix), 0), value=True),
        ).transpose(0, 1)
        # The products of a GPU may round to TF32.
        tolerance = 1e-5 if device == "cpu" else 2e-2
        torch.testing.assert_close(found.view(bs, nodes, HEADS, HEAD_DIM)[row], expected, rtol=0, atol=tolerance)


def small_verifies() -> None:
    for kernel in KERNELS:
        with patch.dict(os.environ, {VARIABLE: kernel}):
            for deterministic in (False, True):
                for nodes in (1, 6):
                    compare_verify("cpu", nodes, deterministic=deterministic)


def _backend(
    keys: torch.Tensor,
    values: torch.Tensor,
    prefix_lens: torch.Tensor,
    of_prefix: torch.Tensor,
    nodes: int,
    deterministic: bool,
) -> TritonAttnBackend:
    """What a verify reads of the backend of a server with CUDA graphs."""

    def offsets(lens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(lens.cumsum(0), (1, 0))

    backend = object.__new__(TritonAttnBackend)
    backend.enable_deterministic, backend.device, backend.page_size = deterministic, keys.device, 1
    backend.dllm_attention, backend.dcp_size, backend.use_dense_fp8_chunked_prefill = None, 1, False
    backend.use_verify_shared_kv = backend.use_verify_splitkv = False
    backend.allow_bidirectional_attention_in_extend = False
    backend.extend_attention_fwd = extend_attention_fwd
    backend.extend_attention_fwd_unified = extend_attention_fwd_unified
    backend.build_unified_kv_indices = build_unified_kv_indices
    backend.token_to_kv_pool = SimpleNamespace(get_key_buffer=lambda layer: keys, get_value_buffer=lambda layer: values)
    backend._verify_mask = maybe_create_verify_mask(
        is_draft_runner=False, skip_prefill=False, max_bs=len(prefix_lens), max_context_len=CONTEXT,
        num_draft_tokens=nodes, device=keys.device, is_read=True, dtype=torch.uint8,
    )  # fmt: skip
    backend.forward_metadata = SimpleNamespace(
        max_extend_len=nodes,
        qo_indptr=offsets(torch.full_like(prefix_lens, nodes)),
        kv_indptr=offsets(prefix_lens).to(torch.int32),
        kv_indices=of_prefix,
        custom_mask=backend._verify_mask.buffer,
        mask_indptr=offsets(nodes * (prefix_lens + nodes)),
    )
    return backend
