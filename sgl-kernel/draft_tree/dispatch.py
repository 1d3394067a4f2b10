"""The one rule that picks an operation's implementation.

The argument `backend` decides; without it the environment variable SGLANG_DRAFT_TREE_BACKEND; without that the device:
Triton on CUDA, torch elsewhere.
"""

from __future__ import annotations

import os
from typing import Literal

import torch

Backend = Literal["torch", "triton"]
VARIABLE = "SGLANG_DRAFT_TREE_BACKEND"


def uses_triton(device: torch.device, backend: Backend | None = None) -> bool:
    """Whether an operation on tensors of `device` launches its Triton kernel.

    Raises ValueError for a backend of another name.
    """
    chosen = backend or os.environ.get(VARIABLE) or ("triton" if device.type == "cuda" else "torch")
    if chosen not in ("torch", "triton"):
        source = "backend" if backend else VARIABLE
        raise ValueError(f"{source} is {chosen!r}; the draft-tree operations have 'torch' and 'triton'")
    return chosen == "triton"
