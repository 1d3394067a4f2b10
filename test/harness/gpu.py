"""What a server of the suite gets besides where an NVIDIA GPU is present.

Tests compare tokens, so most servers compute in float32. Upstream's fused CUDA kernels do not take it: its own switch
puts torch in their place, and Triton's products are told not to round to TF32. Attention, trees and CUDA graphs are
those of every server.
"""

import functools
from typing import Any

import pytest
import torch

_EXACT = {"SGLANG_FORCE_FUSED_OP_BACKEND": "torch", "TRITON_F32_DEFAULT": "ieee"}
_FLAGS = {
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "mem_fraction_static": 0.15,  # several servers share the GPU; max_total_tokens bounds their KV anyway
    "cuda_graph_max_bs_decode": 16,
    "cuda_graph_backend_prefill": "disabled",
}


@functools.cache
def gpus() -> int:
    return torch.cuda.device_count()


def gpu_flags(draft: Any, flags: dict[str, Any]) -> dict[str, Any]:
    """Defaults of a server with ``flags``; skips the test where it needs more GPUs than there are."""
    if not gpus():
        return {}
    needed = flags.get("tp_size", 1) * flags.get("pp_size", 1)
    if needed > gpus():
        pytest.skip(f"{needed} ranks need {needed} GPUs, and there are {gpus()}")
    if draft is None:
        return _FLAGS
    return {**_FLAGS, "speculative_draft_attention_backend": flags.get("attention_backend", "triton")}


def gpu_environment(flags: dict[str, Any]) -> dict[str, str]:
    return dict(_EXACT) if gpus() and flags.get("dtype") == "float32" else {}
