"""Description: Accept DFLASH drafts by the target's own draws, on logits adjusted per node
  Upstream verifies sampled requests greedily where its CUDA kernel is absent, ignores min-p and seeds where it is
  there, and never applies penalties: it reads a field of the sampling information that no longer exists. The worker has
  no extension point for the accept stage.
Origin: vendor
Forwarded: no, the accept rule is this fork's; the penalties are reported as sgl-project/sglang issue 28180
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2._accept_block
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2._can_skip_verify_logits
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2._validate_phase1_sampling_support
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2.forward_batch_generation
Touches: sglang/srt/speculative/dflash_utils.py :: build_speculative_verify_target_probs
Touches: sglang/srt/arg_groups/speculative_hook.py :: _handle_dflash
Touches: sglang/srt/managers/scheduler_components/internal_state.py :: SchedulerInternalStateController._validate_accept_threshold
Applies-To: ==0.5.23
Remove-When: upstream's DFLASH emits plain decoding's tokens for every sampling control
Last-Update: 2026-11-30
"""  # noqa: E501

from patches.transforms import Decorate, Insert, Replace, call

_WORKER = "sglang/srt/speculative/dflash_worker_v2.py"
_PACKAGE = "sglang.srt.speculative.draft_tree"
_CHAIN = f"{_PACKAGE}.chain_round"

EDITS = (
    Decorate(_WORKER, "DFlashWorkerV2._accept_block", "accepts_target_draws", module=_CHAIN),
    Decorate(_WORKER, "DFlashWorkerV2._can_skip_verify_logits", "needs_full_logits", module=_CHAIN),
    Decorate(_WORKER, "DFlashWorkerV2._validate_phase1_sampling_support", "draws_every_sampled_batch", module=_CHAIN),
    Replace(
        _WORKER,
        "DFlashWorkerV2.forward_batch_generation",
        call("apply_dflash_verify_logits_adjustments"),
        "adjust_chain_logits(logits_output.next_token_logits, draft_tokens, sampling_info)",
        module=_CHAIN,
        name="adjust_chain_logits",
    ),
    Decorate(
        "sglang/srt/speculative/dflash_utils.py",
        "build_speculative_verify_target_probs",
        "joint_filters",
        module=f"{_PACKAGE}.verify_filters",
    ),
    Insert(
        "sglang/srt/arg_groups/speculative_hook.py",
        "_handle_dflash",
        "check_accept_thresholds(server_args)",
        module=f"{_PACKAGE}.accept_thresholds",
        name="check_accept_thresholds",
        where="start",
    ),
    Insert(
        "sglang/srt/managers/scheduler_components/internal_state.py",
        "SchedulerInternalStateController._validate_accept_threshold",
        "check_threshold_update(self.scheduler, key, value)",
        module=f"{_PACKAGE}.accept_thresholds",
        name="check_threshold_update",
        where="start",
    ),
)
