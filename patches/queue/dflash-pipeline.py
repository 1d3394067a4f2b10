"""Description: Serve DFLASH over pipeline stages
  Upstream refuses it in two places. Its relay of drafts between stages is made for EAGLE's trees and verify batch, the
  states that a DFLASH draft reads are captured on the last stage alone, and the embedding that it borrows is on the
  first. None of these has an extension point.
Origin: vendor
Forwarded: no, it stands on this fork's trees
Touches: sglang/srt/arg_groups/speculative_hook.py :: _handle_dflash
Touches: sglang/srt/arg_groups/validation_hook.py :: check_pipeline_parallel_compat
Touches: sglang/srt/model_executor/model_runner_components/attention_backend_setup.py :: configure_aux_hidden_state_capture
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2.__init__
Touches: sglang/srt/managers/scheduler.py :: Scheduler.maybe_init_draft_worker
Touches: sglang/srt/managers/scheduler.py :: Scheduler.init_all_cuda_graphs
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_prepare_tensor_dict
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_prep_batch_result
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_spec_commit_relayed_accept
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_spec_adopt_relayed_tree
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_spec_set_relay
Touches: sglang/srt/managers/scheduler_pp_mixin.py :: SchedulerPPMixin._pp_spec_rebuild_verify_input
Applies-To: ==0.5.23
Remove-When: upstream's DFLASH serves pp_size > 1
Last-Update: 2026-11-30
"""  # noqa: E501

from patches.transforms import Decorate, Insert, Replace, expression

_PACKAGE = "sglang.srt.speculative.draft_tree"
_SEAMS = f"{_PACKAGE}.pipeline_seams"


def _relay(method: str, decorator: str) -> Decorate:
    return Decorate("sglang/srt/managers/scheduler_pp_mixin.py", f"SchedulerPPMixin.{method}", decorator, module=_SEAMS)


EDITS = (
    Replace(
        "sglang/srt/arg_groups/speculative_hook.py",
        "_handle_dflash",
        expression("cfg.pp_size != 1"),
        "not serves_stages(server_args)",
        module=f"{_PACKAGE}.pipeline_launch",
        name="serves_stages",
    ),
    Replace(
        "sglang/srt/arg_groups/validation_hook.py",
        "check_pipeline_parallel_compat",
        expression('cfg.speculative_algorithm.upper() == "EAGLE"'),
        'cfg.speculative_algorithm.upper() in ("EAGLE", "DFLASH")',
    ),
    Decorate(
        "sglang/srt/model_executor/model_runner_components/attention_backend_setup.py",
        "configure_aux_hidden_state_capture",
        "captures_by_stage",
        module=f"{_PACKAGE}.pipeline_capture",
    ),
    Replace(
        "sglang/srt/speculative/dflash_worker_v2.py",
        "DFlashWorkerV2.__init__",
        expression("build_draft_tp_worker"),
        "builds_on_last_stage({match}, target_worker)",
        module=f"{_PACKAGE}.pipeline_draft",
        name="builds_on_last_stage",
    ),
    Insert(
        "sglang/srt/managers/scheduler.py",
        "Scheduler.maybe_init_draft_worker",
        "set_up_stage(self)",
        module=_SEAMS,
        name="set_up_stage",
    ),
    Decorate("sglang/srt/managers/scheduler.py", "Scheduler.init_all_cuda_graphs", "captures_widths", module=_SEAMS),
    _relay("_pp_prepare_tensor_dict", "sends_path_scores"),
    _relay("_pp_prep_batch_result", "finishes_result"),
    _relay("_pp_spec_commit_relayed_accept", "for_trees('move_accepted_path')"),
    _relay("_pp_spec_adopt_relayed_tree", "for_trees('adopt_next_trees')"),
    _relay("_pp_spec_set_relay", "for_trees('adopt_roots')"),
    _relay("_pp_spec_rebuild_verify_input", "for_trees('build_verify_input')"),
)
