"""Refusal of acceptance thresholds that no accept rule could honour, at launch and at run time.

Below their lossless default the thresholds trade exactness for accepted tokens, at the user's request. Only upstream's
ratio test takes them, and only on a device that has its kernel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
LOSSLESS = 1.0


def check_accept_thresholds(server_args: ServerArgs) -> None:
    """Raise LaunchError for acceptance thresholds that DFLASH could not honour with `server_args`."""
    from sglang.srt.arg_groups.overrides import resolving_view

    cfg = resolving_view(server_args)
    for name in THRESHOLDS:
        value = getattr(cfg, name)
        reason = threshold_refusal(value, deterministic=cfg.enable_deterministic_inference)
        if reason is not None:
            flag = f"--{name.replace('_', '-')}"
            raise LaunchError(f"{flag} {value}: {reason} Leave the flag out; {LOSSLESS} is the lossless default.")
    if cfg.speculative_use_block_verification and cfg.enable_deterministic_inference:
        logger.warning(
            "--speculative-use-block-verification has no effect with --enable-deterministic-inference: "
            "seeded requests accept by the target's own draws."
        )


def check_threshold_update(scheduler: Scheduler, key: str, value: Any) -> None:
    """Raise upstream's UpdateRejected for a threshold that a running DFLASH server could not honour."""
    from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected
    from sglang.srt.runtime_context import get_exec

    if not scheduler.spec_algorithm.is_dflash():
        return
    reason = threshold_refusal(float(value), deterministic=get_exec().deterministic.enable_deterministic_inference)
    if reason is not None:
        raise UpdateRejected(f"Updating {key} to {value} is rejected: {reason}")


def threshold_refusal(value: float, *, deterministic: bool) -> str | None:
    """Why a threshold of `value` cannot be honoured, as a sentence; None if it can."""
    if value == LOSSLESS:
        return None
    if deterministic:
        return "with deterministic inference every request is accepted by seeded draws of the target, exactly."
    # Late: it builds on the scheduler's modules, which import the arguments that are being checked.
    from sglang.srt.speculative.dflash_utils import is_dflash_sampling_verify_available

    if not is_dflash_sampling_verify_available():
        return "this device has no sampling kernel that takes thresholds; DFLASH accepts exactly here."
    return None
