"""The CPU reference platform: the whole product on plain torch, chosen when no accelerator is there.

It serves three ends: anyone can try the fork without a GPU; the product is tested end to end on a CPU;
and every stage of a decode round runs on the torch reference that its kernel is checked against.

    platform.py    what the machine is, which server defaults follow from that, which classes core should build
    backend_choice.py  resolution step that picks the attention and sampling backends
    attention.py   attention backend: prefill, decode, verification of a chain or a tree, the draft's two-way block
    visibility.py  which cached positions a query row may see, as one boolean mask per forward
    kv_pool.py     KV pools that move slots by indexing instead of by a Triton copy
    cache_slots.py slot bookkeeping (request row <-> slot ids) as batched torch operations
    seams.py       what the patches call where upstream has no extension point

Selection follows upstream's rules for platform plugins: `SGLANG_PLATFORM=cpu_reference` asks for it by name,
`SGLANG_PLATFORM=<other>` never gets it, and without the variable :func:`activate` decides.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import entry_points

logger = logging.getLogger(__name__)

PLATFORM_NAME = "cpu_reference"
ATTENTION_BACKEND = "cpu_reference"
PLATFORM_CLASS = "sglang.srt.platforms.cpu_reference.platform:CpuReferencePlatform"
_PLATFORM_GROUP = "sglang.srt.platforms"


def activate() -> str | None:
    """Entry point of the platform plugin.

    Returns the platform class as ``module:name``, or None when another platform should serve this machine.

    Raises:
        RuntimeError: the platform was asked for by name while torch still sees an accelerator. Upstream caches
            that fact in module constants, so the two cannot be mixed in one process.
    """
    import torch

    asked_for = os.environ.get("SGLANG_PLATFORM") == PLATFORM_NAME
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        if asked_for:
            raise RuntimeError(
                f"SGLANG_PLATFORM={PLATFORM_NAME} was asked for, but torch sees an accelerator ({accelerator.type}). "
                "Hide it first, for example with CUDA_VISIBLE_DEVICES='', or unset SGLANG_PLATFORM to serve on it."
            )
        return None
    if asked_for:
        return PLATFORM_CLASS
    if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":  # upstream's own CPU engine was asked for
        return None
    others = sorted({entry.name for entry in entry_points(group=_PLATFORM_GROUP)} - {PLATFORM_NAME})
    if others:
        logger.info(
            "Platform plugins %s are installed, so %s stands back; SGLANG_PLATFORM=%s selects it.",
            ", ".join(others),
            PLATFORM_NAME,
            PLATFORM_NAME,
        )
        return None
    return PLATFORM_CLASS
