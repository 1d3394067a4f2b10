"""Description: Verify draft trees with DFLASH
  The flags, the worker that serves them, the target's graphs for a verify with a mask, and what the rounds report. A
  plugin can add no field to the arguments, and upstream's DFLASH captures its graphs for a causal verify alone.
Origin: vendor
Forwarded: no, trees are this fork's
Touches: sglang/srt/arg_groups/fields/spec.py :: Spec
Touches: sglang/srt/arg_groups/attention_hook.py :: handle_attention_backend_compatibility
Touches: sglang/srt/arg_groups/speculative_hook.py :: _handle_dflash
Touches: sglang/srt/speculative/spec_info.py :: SpeculativeAlgorithm.create_worker
Touches: sglang/srt/speculative/spec_info.py :: create_dummy_verify_input
Touches: sglang/srt/speculative/spec_sampling_mask.py :: validate_spec_sampling_mask_request
Touches: sglang/srt/model_executor/runner/decode_cuda_graph_runner.py :: DecodeCudaGraphRunner.get_spec_info
Touches: sglang/srt/managers/scheduler_components/internal_state.py :: SchedulerInternalStateController._add_speculative
Touches: sglang/srt/managers/scheduler_components/metrics_reporter.py :: SchedulerMetricsReporter.report_decode_stats
Applies-To: ==0.5.23
Remove-When: upstream's DFLASH verifies trees
Last-Update: 2026-11-30
"""

from patches.transforms import AddField, Decorate, Insert

_PACKAGE = "sglang.srt.speculative.draft_tree"
_SPEC_INFO = "sglang/srt/speculative/spec_info.py"

EDITS = (
    AddField(
        "sglang/srt/arg_groups/fields/spec.py",
        "Spec",
        "speculative_dflash_tree_budget: A[\n"
        "    int,\n"
        "    Arg(\n"
        '        help="DFLASH only. Draft nodes of the tree that one verify sees per request, root excluded: 0-255. "\n'
        '        "0 verifies the chain of the block; auto chooses a width per round, plain decoding among them.",\n'
        '        type_parser=lambda text: text if text == "auto" else int(text),\n'
        "    ),\n"
        "] = 0\n",
    ),
    AddField(
        "sglang/srt/arg_groups/fields/spec.py",
        "Spec",
        "speculative_dflash_tree_topk: A[\n"
        "    int,\n"
        '    "DFLASH with a tree budget only. Candidates per depth that a tree is built from: 1 to 16.",\n'
        "] = 8\n",
    ),
    Decorate(
        "sglang/srt/arg_groups/attention_hook.py",
        "handle_attention_backend_compatibility",
        "after_tree_backend_choice",
        module=f"{_PACKAGE}.launch",
    ),
    Insert(
        "sglang/srt/arg_groups/speculative_hook.py",
        "_handle_dflash",
        "resolve_draft_tree(server_args)",
        module=f"{_PACKAGE}.launch",
        name="resolve_draft_tree",
        where="end",
    ),
    Decorate(_SPEC_INFO, "SpeculativeAlgorithm.create_worker", "serves_trees", module=f"{_PACKAGE}.worker_choice"),
    Decorate(_SPEC_INFO, "create_dummy_verify_input", "warms_up_trees", module=f"{_PACKAGE}.capture"),
    Decorate(
        "sglang/srt/speculative/spec_sampling_mask.py",
        "validate_spec_sampling_mask_request",
        "refuses_sampling_masks",
        module=f"{_PACKAGE}.launch",
    ),
    Decorate(
        "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py",
        "DecodeCudaGraphRunner.get_spec_info",
        "captures_trees",
        module=f"{_PACKAGE}.capture",
    ),
    Decorate(
        "sglang/srt/managers/scheduler_components/internal_state.py",
        "SchedulerInternalStateController._add_speculative",
        "shows_rounds",
        module=f"{_PACKAGE}.round_metrics",
    ),
    Decorate(
        "sglang/srt/managers/scheduler_components/metrics_reporter.py",
        "SchedulerMetricsReporter.report_decode_stats",
        "exports_rounds",
        module=f"{_PACKAGE}.round_metrics",
    ),
)
