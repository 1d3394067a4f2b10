"""Attention and sampling backends on a machine without an accelerator."""

from __future__ import annotations

from sglang.srt.platforms.cpu_reference import ATTENTION_BACKEND


def resolve_backends(server_args, previous) -> None:
    """Resolution step: attention and sampling backends on a machine without an accelerator.

    Args:
        server_args: the record being resolved.
        previous: upstream's step, which is not called.

    Raises:
        ValueError: a backend was asked for that needs an accelerator.
    """
    # Imported late: the module reads the current platform, which is being constructed when this one loads.
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view

    asked = resolving_view(server_args)
    served = {
        "attention_backend": (ATTENTION_BACKEND, "torch_native"),
        "prefill_attention_backend": (ATTENTION_BACKEND, "torch_native"),
        "decode_attention_backend": (ATTENTION_BACKEND, "torch_native"),
        "sampling_backend": ("pytorch",),
    }
    for field, names in served.items():
        name = getattr(asked, field)
        if name is not None and name not in names:
            raise ValueError(
                f"--{field.replace('_', '-')} {name} needs an accelerator, and torch sees none on this machine. "
                f"Leave the flag out, or name one of: {', '.join(names)}."
            )
    declare_resolution(
        server_args,
        "cpu_reference.resolve_backends",
        attention_backend=asked.attention_backend or ATTENTION_BACKEND,
        sampling_backend="pytorch",
    )
