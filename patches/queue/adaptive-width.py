"""Description: Choose the verify width of draft trees per round
  The field for the widths, the way of a choice to all ranks with the requests, and graphs and logits of each width for
  the batches that use it. Upstream's adaptive speculation knows its own algorithms alone, and all its ranks choose.
Origin: vendor
Forwarded: no, trees are this fork's
Touches: sglang/srt/arg_groups/fields/spec.py :: Spec
Touches: sglang/srt/model_executor/model_runner.py :: ModelRunner.max_decode_logits_rows
Touches: sglang/srt/model_executor/model_runner_components/cuda_graph_setup.py :: capture_decode_graph
Touches: sglang/srt/managers/scheduler.py :: Scheduler._poll_timeout_aborts
Touches: sglang/srt/managers/scheduler.py :: Scheduler.init_request_dispatcher
Applies-To: ==0.5.23
Remove-When: upstream's DFLASH verifies trees
Last-Update: 2026-11-30
"""

from patches.transforms import AddField, Decorate

_PACKAGE = "sglang.srt.speculative.draft_tree"

EDITS = (
    AddField(
        "sglang/srt/arg_groups/fields/spec.py",
        "Spec",
        "speculative_dflash_widths: A[\n"
        "    Optional[list[int]],\n"
        '    "DFLASH with --speculative-dflash-tree-budget auto only. What a round may verify per request, root "\n'
        '    "included; 1 is plain decoding. Default: 1 4 8 16 32 64.",\n'
        "] = None\n",
    ),
    Decorate(
        "sglang/srt/model_executor/model_runner.py",
        "ModelRunner.max_decode_logits_rows",
        "counts_rows_by_width",
        module=f"{_PACKAGE}.width_graphs",
    ),
    Decorate(
        "sglang/srt/model_executor/model_runner_components/cuda_graph_setup.py",
        "capture_decode_graph",
        "captures_few_wide_batches",
        module=f"{_PACKAGE}.width_graphs",
    ),
    Decorate(
        "sglang/srt/managers/scheduler.py",
        "Scheduler._poll_timeout_aborts",
        "sends_width_choices",
        module=f"{_PACKAGE}.width_relay",
    ),
    Decorate(
        "sglang/srt/managers/scheduler.py",
        "Scheduler.init_request_dispatcher",
        "receives_width_choices",
        module=f"{_PACKAGE}.width_relay",
    ),
)
