"""Which kernel the triton backend verifies with: upstream's extend attention, or split verify attention.

Upstream's is made for prefills: a program has one head and walks through the whole prefix of its request. A verify has
few rows, so most of a tile is empty, few programs run, and the same keys are read for every head of a group. On one
H200 with a Qwen3-8B shape at a context of 512 (`benchmark.round`, triton 3.8.0) the tokens of a verify cost 21
microseconds each, which is their matrix products, and each request 0.41 ms more.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

VARIABLE = "SGLANG_DRAFT_TREE_ATTENTION"
KERNELS = ("extend", "split")


def verify_kernel() -> str:
    """The kernel's name in SGLANG_DRAFT_TREE_ATTENTION; extend, the default, is upstream's. Raises LaunchError."""
    chosen = os.environ.get(VARIABLE) or KERNELS[0]
    if chosen not in KERNELS:
        names = " or ".join(KERNELS)
        raise LaunchError(f"{VARIABLE}={chosen}: a verify on triton runs with {names}. Name one of them.")
    return chosen


def verifies_in_splits(forward_extend_kernel: Callable) -> Callable:
    """Wrap `TritonAttnBackend._forward_extend_kernel`: what the split kernel can do, it does where it is asked for."""

    @functools.wraps(forward_extend_kernel)
    def run(self: TritonAttnBackend, layer: Any, *args: Any, **options: Any) -> Any:
        # Only a verify has offsets of masks, with a mask or without.
        if (
            self.forward_metadata.mask_indptr is None
            or verify_kernel() == "extend"
            or not _can_split(self, args, options)
        ):
            return forward_extend_kernel(self, layer, *args, **options)
        return _split(*args, logit_cap=options.get("logit_cap", 0.0))

    return run


def _can_split(backend: TritonAttnBackend, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether nothing is asked for that only upstream's kernel has."""
    plain = options.get("sliding_window_size", -1) <= 0 and options.get("xai_temperature_len", -1) <= 0
    added = any(options.get(name) is not None for name in ("sinks", "score_mod", "aux_tensors"))
    by_slot = args[4].dim() == 3  # and not by page, with other tensors between the pages
    fits = args[0].element_size() <= 2 or args[0].shape[-1] <= 128
    return plain and not added and by_slot and fits and backend.dllm_attention is None and torch.version.hip is None


def _split(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    pool_keys: torch.Tensor,
    pool_values: torch.Tensor,
    start: torch.Tensor,
    prefix_start: torch.Tensor,
    prefix_slots: torch.Tensor,
    cells: torch.Tensor | None,
    causal: bool,
    cells_start: torch.Tensor,
    most: int,
    key_scale: float,
    value_scale: float,
    scale: float,
    *,
    logit_cap: float,
) -> None:
    """`verify_attention` with upstream's arguments, in upstream's order."""
    from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix, verify_attention

    mask = Mask("tree", cells, cells_start) if cells is not None else Mask("earlier" if causal else "all")
    # The layer hands on keys and values as rows of all heads or by head.
    keys, values = keys.view(len(keys), -1, pool_keys.shape[2]), values.view(len(values), -1, pool_values.shape[2])
    verify_attention(
        out,
        NewRows(queries, keys, values, start, most),
        Prefix(pool_keys, pool_values, prefix_slots, prefix_start, key_scale, value_scale),
        mask,
        scale,
        logit_cap,
    )
