"""The draft-tree kernels as they are launched for the largest tree that is served, compiled without a GPU.

Launchers run on CPU tensors with the launch itself recorded instead of made; what was launched is then compiled ahead
of time, down to machine code.
"""

from collections.abc import Callable
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from sglang.kernels.draft_tree.accept_walk import empty_path
from sglang.kernels.draft_tree.accept_walk_triton import launch_walk
from sglang.kernels.draft_tree.candidates_triton import launch_top_candidates
from sglang.kernels.draft_tree.kept_probs_triton import launch_kept_probs
from sglang.kernels.draft_tree.kv_compact_triton import launch_gather_rows, launch_move_rows
from sglang.kernels.draft_tree.stamp_triton import launch_stamp
from sglang.kernels.draft_tree.tree_build import empty_tree
from sglang.kernels.draft_tree.tree_build_triton import launch_build_tree
from sglang.kernels.draft_tree.tree_layout import empty_layout
from sglang.kernels.draft_tree.tree_layout_triton import launch_compile_tree
from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix
from sglang.kernels.draft_tree.verify_attention_triton import launch_verify_attention

TYPES = {
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.uint8: "*u8",
    torch.bool: "*i1",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float8_e4m3fn: "*fp8e4nv",
}
BATCH, NODES, DEPTH, TOPK, VOCAB = 64, 256, 16, 16, 163840  # the largest tree that is served; Kimi's vocabulary
HIDDEN = 3 * 7168  # of three captured layers of Kimi


def candidates() -> None:
    ids = torch.empty(BATCH * DEPTH, TOPK, dtype=torch.int64)
    logits = torch.empty(1, VOCAB, dtype=torch.bfloat16).expand(BATCH * DEPTH, VOCAB)
    launch_top_candidates(ids, torch.empty(BATCH * DEPTH, TOPK), logits, TOPK)


def tree_build(rows: int) -> None:
    token_ids = torch.zeros(BATCH, DEPTH, TOPK, dtype=torch.int64)
    steps = torch.zeros(BATCH, DEPTH, rows, TOPK)
    ranks = torch.zeros(steps.shape, dtype=torch.int64) if rows > 1 else None
    launch_build_tree(empty_tree(BATCH, NODES - 1, "cpu"), token_ids[:, 0, 0], token_ids, steps, ranks)


def tree_layout() -> None:
    parents, prefix_lens = torch.zeros(BATCH, NODES, dtype=torch.int64), torch.zeros(BATCH, dtype=torch.int32)
    flat_mask = torch.zeros(BATCH * NODES * NODES, dtype=torch.bool)
    launch_compile_tree(empty_layout(BATCH, NODES, "cpu"), flat_mask, parents, parents, prefix_lens, True)


def accept_walk() -> None:
    tokens = torch.zeros(BATCH, NODES, dtype=torch.int64)
    launch_walk(empty_path(BATCH, DEPTH, "cpu"), tokens, tokens, tokens)


def kv_compact(word_bytes: int) -> None:
    table, slots = torch.zeros(122, dtype=torch.int64), torch.zeros(BATCH, NODES, dtype=torch.int64)
    launch_move_rows(table, table, table, 4096, word_bytes, slots, slots[:, :DEPTH].contiguous())


def kept_probs() -> None:
    probs, filters = torch.empty(2, VOCAB), torch.zeros(2)
    launch_kept_probs(probs, probs, torch.zeros(2, dtype=torch.int32), filters, filters)


def gather() -> None:
    hidden = torch.empty(1, NODES, HIDDEN, dtype=torch.bfloat16)
    launch_gather_rows(hidden[:, :DEPTH].clone(), hidden, torch.zeros(1, DEPTH, dtype=torch.int64))


def verify_attention(heads: int, kv_heads: int, head_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    """A tree of 33 nodes, one request, so that the prefix is split; a pool of `dtype`."""
    start, slots = torch.zeros(2, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)
    keys, pool = _rows(kv_heads, head_dim), _rows(kv_heads, head_dim).to(dtype)
    new = NewRows(_rows(heads, head_dim), keys, keys[..., :value_dim].contiguous(), start, 33)
    values = pool[..., :value_dim] if value_dim < head_dim else torch.empty_like(pool)
    prefix = Prefix(pool, values, slots, start.to(torch.int32))
    launch_verify_attention(_rows(heads, value_dim), new, prefix, Mask("tree", slots.bool(), start), 0.1, 0.0)


def _rows(heads: int, size: int) -> torch.Tensor:
    return torch.zeros(33, heads, size, dtype=torch.bfloat16)


BYTE = torch.float8_e4m3fn
SPLIT = {"_verify_kernel", "_merge_kernel"}
LAUNCHES = {
    "candidates": (candidates, {"_part_kernel", "_merge_kernel"}),
    "tree_build": (lambda: tree_build(1), {"_build_tree_kernel"}),
    "tree_build of pairs": (lambda: tree_build(TOPK), {"_build_tree_kernel"}),
    "tree_layout": (tree_layout, {"_compile_tree_kernel", "_fill_prefix_kernel"}),
    "accept_walk": (accept_walk, {"_walk_kernel"}),
    "kept_probs": (kept_probs, {"_kept_probs_kernel"}),
    "kv_compact of words": (lambda: kv_compact(8), {"_move_rows_kernel"}),
    "kv_compact of bytes": (lambda: kv_compact(1), {"_move_rows_kernel"}),
    "kv_compact of hidden states": (gather, {"_gather_rows_kernel"}),
    # Qwen3-8B; the bundled target; Kimi K2.6 over eight GPUs.
    "verify_attention": (lambda: verify_attention(32, 8, 128, 128, torch.bfloat16), SPLIT),
    "verify_attention, 64 wide": (lambda: verify_attention(9, 3, 64, 64, torch.bfloat16), SPLIT),
    "verify_attention, 256 wide": (lambda: verify_attention(16, 2, 256, 256, torch.bfloat16), SPLIT),
    "verify_attention, latent": (lambda: verify_attention(8, 1, 576, 512, torch.bfloat16), SPLIT),
    "verify_attention, fp8 pool": (lambda: verify_attention(32, 8, 128, 128, BYTE), SPLIT),
    "verify_attention, latent fp8 pool": (lambda: verify_attention(8, 1, 576, 512, BYTE), SPLIT),
    "stamp": (lambda: launch_stamp(torch.zeros(6, dtype=torch.int64), 2), {"_stamp_kernel"}),
}


def recorded(launch: Callable[[], None]) -> list[tuple[JITFunction, tuple, dict]]:
    """The kernels that ``launch`` launches, with their arguments and keywords."""
    seen: list[tuple[JITFunction, tuple, dict]] = []

    def record(self, *arguments, grid, warmup, **keywords):
        seen.append((self, arguments, keywords))

    with patch.object(JITFunction, "run", record):
        launch()
    return seen


def compile_for(architecture: int, kernel: JITFunction, arguments: tuple, keywords: dict):
    """A kernel compiled as the launch with these arguments would compile it on a GPU of ``architecture``."""
    named = dict(zip(kernel.arg_names, arguments, strict=False))
    named |= {name: keywords[name] for name in kernel.arg_names if name in keywords}
    named = {name: named[name] for name in kernel.arg_names if name in named}
    constexpr = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    signature = {name: _type(value, name in constexpr) for name, value in named.items()}
    constants = {name: value for name, value in named.items() if signature[name] == "constexpr"}
    # What a launch knows of its arguments: without it loads are not pipelined, and take less shared memory.
    aligned = [name for name, value in named.items() if signature[name] != "constexpr" and _aligned(value)]
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    options = {name: value for name, value in keywords.items() if name not in kernel.arg_names}
    return triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", architecture, 32),
        options=options,
    )


def _type(value, constexpr: bool) -> str:
    if constexpr or value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def _aligned(value) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0)
