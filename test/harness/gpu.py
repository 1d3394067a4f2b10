"""What a server of the suite gets besides where an NVIDIA GPU is present.

Tests compare tokens, so most servers compute in float32. Upstream's fused CUDA kernels do not take it: its own switch
puts torch in their place, and Triton's products are told not to round to TF32. Attention, trees and CUDA graphs are
those of every server, but for a mixture of experts: torch's reads the tokens of each expert on the host, which no graph
can hold.
"""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

_EXACT = {"SGLANG_FORCE_FUSED_OP_BACKEND": "torch", "TRITON_F32_DEFAULT": "ieee"}
_FLAGS = {
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    # max_total_tokens bounds the KV; the rest is room for what other servers take while this one measures the memory.
    "mem_fraction_static": 0.5,
    "cuda_graph_max_bs_decode": 16,
    "cuda_graph_backend_prefill": "disabled",
}


@functools.cache
def gpus() -> int:
    return torch.cuda.device_count()


def gpu_flags(model: Path | str, draft: Any, flags: dict[str, Any]) -> dict[str, Any]:
    """Defaults of a server of ``model`` with ``flags``; skips the test where it needs more GPUs than there are."""
    if not gpus():
        return {}
    needed = _ranks(flags)
    if needed > gpus():
        pytest.skip(f"{needed} ranks need {needed} GPUs, and there are {gpus()}")
    found = dict(_FLAGS)
    if _needs_exact(flags) and _has_experts(model):
        found["disable_cuda_graph"] = True
    if flags.get("node_rank"):
        found["base_gpu_id"] = needed // flags["nnodes"] * flags["node_rank"]  # both nodes are this machine
    if draft is not None:
        found["speculative_draft_attention_backend"] = flags.get("attention_backend", "triton")
    return found


def _ranks(flags: dict[str, Any]) -> int:
    return flags.get("tp_size", 1) * flags.get("pp_size", 1)


def _needs_exact(flags: dict[str, Any]) -> bool:
    return flags.get("dtype") == "float32"


def _has_experts(model: Path | str) -> bool:
    path = Path(model) / "config.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    return any("experts" in key for key in {**config, **config.get("text_config", {})})


def gpu_environment(flags: dict[str, Any]) -> dict[str, str]:
    return dict(_EXACT) if gpus() and _needs_exact(flags) else {}
