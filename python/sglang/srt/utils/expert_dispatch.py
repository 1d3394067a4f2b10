"""Whether the experts of a model have a runner for the dispatch backend that was asked for, before weights are loaded.

INT4 and INT8 experts of compressed-tensors (Kimi K2.5 and K2.6) run on Marlin, which takes its tokens from no dispatch
backend; release 0.5.23 says so while it builds the model, in each model process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sglang.srt.arg_groups.overrides import model_config_of, resolved_view
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

# With these, such experts go another way than Marlin.
_OTHER_RUNNERS = ("triton", "flashinfer_trtllm")
_EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")


def check_expert_dispatch(server_args: ServerArgs) -> None:
    """Raise LaunchError if ``--moe-a2a-backend`` names one that the model's experts have no runner for."""
    view, platform = resolved_view(server_args), get_platform()
    if view.moe_a2a_backend == "none" or not platform.is_cuda:
        return
    if view.moe_runner_backend in _OTHER_RUNNERS or (view.moe_runner_backend == "auto" and platform.is_sm100):
        return
    bits = marlin_expert_bits(model_config_of(server_args).hf_config)
    if bits is not None:
        raise LaunchError(
            f"--moe-a2a-backend {view.moe_a2a_backend}: the experts of {view.model_path} are INT{bits} of "
            "compressed-tensors, which run on Marlin, and Marlin has no dispatch backend. Leave the flag out: "
            f"--ep-size {view.tp_size} alone spreads the experts over the GPUs."
        )


def marlin_expert_bits(hf_config: Any) -> int | None:
    """Bits of a model's experts where Marlin runs them on CUDA; None for other models.

    By release 0.5.23's rule for compressed-tensors: static integer weights in groups or channels, and activations as
    they are. A model that leaves its routed experts unquantized is another model.
    """
    text = getattr(hf_config, "text_config", None) or hf_config
    if not any(getattr(text, count, None) for count in _EXPERT_COUNTS):
        return None
    quantization = next(
        (
            found
            for config in (hf_config, text)
            for name in ("quantization_config", "compression_config")
            if (found := _as_mapping(getattr(config, name, None)))
        ),
        {},
    )
    if quantization.get("quant_method") != "compressed-tensors":
        return None
    if any("expert" in name and "shared_expert" not in name for name in quantization.get("ignore") or ()):
        return None
    for group in (quantization.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        packed = weights.get("type", "int") == "int" and weights.get("strategy") in ("group", "channel")
        if packed and not weights.get("dynamic") and group.get("input_activations") is None:
            return int(weights["num_bits"])
    return None


def _as_mapping(value: Any) -> Mapping[str, Any] | None:
    return value.to_dict() if hasattr(value, "to_dict") else value
