"""Whether a DFLASH draft can use the target's output head, which is its own too.

A quantized head has no matrix to multiply with: its tokens come from its quantization method, which upstream calls on
one GPU alone. Which method a head has is known once the target is built, before anything is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.layers.logits_processor import should_apply_lm_head_quant_method
from sglang.srt.lora.layers import unwrap_lora_layer
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.dflash_utils import is_dense_head_weight
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2


def check_borrowed_head(worker: DFlashWorkerV2) -> None:
    """Raise LaunchError, with the type of the head, if ``worker``'s drafts cannot be read off the target's head."""
    target = worker.target_worker.model_runner.model
    scores_candidates = worker.selector is not None or worker.lilicorr is not None
    problem = head_problem(
        unwrap_lora_layer(getattr(target, "lm_head", None)), scores_candidates, int(get_parallel().tp_group.world_size)
    )
    if problem:
        raise LaunchError(
            f"--speculative-algorithm DFLASH: the output head of {type(target).__name__} {problem}, and DFLASH drafts "
            "are read off it. Serve a checkpoint whose lm_head is not quantized, or leave --speculative-algorithm out."
        )


def head_problem(head: Any, scores_candidates: bool, tp_size: int) -> str | None:
    """Why drafts cannot be read off ``head``, or None.

    ``scores_candidates``: the draft needs the scores of several tokens (selector, LiLiCorr), not only the best one.
    """
    if head is None:
        return "is not there (no lm_head)"
    if is_dense_head_weight(getattr(head, "weight", None)):
        return None
    method = getattr(head, "quant_method", None)
    found = f"is a {type(head).__name__} with {type(method).__name__ if method else 'no quantization method'}"
    if not callable(getattr(method, "apply", None)):
        return f"{found}, which has neither a dense weight nor a method to apply"
    if type(method).__name__.startswith("Unquantized"):
        return f"{found} and weights of type {head.weight.dtype}, which no matrix product takes"
    if scores_candidates and not should_apply_lm_head_quant_method(head, method):
        return f"{found}, which this kind of draft cannot score candidates with"
    if tp_size > 1 and not scores_candidates:
        return f"{found}, which drafts can use on one GPU alone (--tp-size is {tp_size})"
    return None
