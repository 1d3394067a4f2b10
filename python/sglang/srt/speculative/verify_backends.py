"""Which attention backends can run the target's verification, as data.

A verify batch has several query rows per request over a cached prefix. Backends that know only prefill and
single-token decoding fail on the first one, in the model process and after all weights are loaded.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.utils.launch_error import LaunchError

# Why each of these cannot verify a DFLASH block. A backend that is not listed can.
CANNOT_VERIFY = {
    "torch_native": "it has no verify path: it needs per-request extend lengths, which a verify batch does not carry",
    "flex_attention": "it builds masks for prefill and single-token decoding only",
    "hpc_ops": "it has no kernel for several query rows per request in decoding",
    "llada2_cfg_flashinfer": "it serves diffusion language models only",
    "intel_amx": "it reads a tree width that a DFLASH verify batch does not carry",
}

# What to name instead, by device type.
CAN_VERIFY = {
    "cuda": ("triton", "flashinfer", "fa3", "fa4"),
    "hip": ("triton", "aiter"),
    "npu": ("ascend",),
    "xpu": ("intel_xpu", "triton"),
}


def check_verify_backend(prefill: str | None, decode: str | None, attention_mode: str, platform: Any) -> None:
    """Refuse a target attention backend that cannot verify.

    ``prefill`` and ``decode`` are the backends of the two phases (None: not chosen yet); ``attention_mode`` is
    ``--speculative-attention-mode`` and says which of them verifies. An out-of-tree ``platform`` may name its own
    in ``verify_attention_backends``; then only these are accepted.

    Raises LaunchError.
    """
    backend = decode if attention_mode == "decode" else prefill
    if backend is None:
        return
    own = getattr(platform, "verify_attention_backends", None)
    accepted = backend not in CANNOT_VERIFY if own is None else backend in own
    if accepted:
        return
    reason = CANNOT_VERIFY.get(backend, f"{type(platform).__name__} does not verify with it")
    flags = "--attention-backend"
    if prefill != decode:
        flags = "--decode-attention-backend" if attention_mode == "decode" else "--prefill-attention-backend"
    raise LaunchError(
        f"{flags} {backend}: this backend cannot verify the drafts of --speculative-algorithm DFLASH ({reason}). "
        f"Leave the flag out, or give one of: {', '.join(own or _alternatives(platform))}."
    )


def check_draft_backend(backend: str | None, supported: list[str], platform: Any) -> None:
    """Refuse a ``--speculative-draft-attention-backend`` that cannot run the draft's non-causal block.

    Upstream would take another one and say so in the log; a backend that was asked for by name is used or refused.
    ``supported`` is upstream's list for in-tree platforms. Raises LaunchError.
    """
    if backend is None:
        return
    if platform.is_out_of_tree():
        if platform.supports_speculative_draft_attention_backend("DFLASH", backend):
            return
        supported = [platform.get_default_speculative_draft_attention_backend("DFLASH")]
    elif backend in supported:
        return
    raise LaunchError(
        f"--speculative-draft-attention-backend {backend}: a DFLASH draft attends in both directions within its block, "
        f"which this backend cannot do. Leave the flag out, or give one of: {', '.join(supported)}."
    )


def _alternatives(platform: Any) -> tuple[str, ...]:
    if platform.is_out_of_tree():
        return (platform.get_default_attention_backend(),)
    kind = "hip" if platform.is_rocm() else platform.device_type
    return CAN_VERIFY.get(kind, CAN_VERIFY["cuda"])
