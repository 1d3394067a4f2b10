"""Description: Refuse a dispatch backend that INT4 experts have no runner for, before weights are loaded
  Expert parallelism of Kimi K2.5 and K2.6 with DeepEP ends each model process while the model is built. The flag that
  works is a shorter command line. Resolution hooks run only for plugins.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/arg_groups/moe_hook.py :: handle_a2a_moe
Applies-To: ==0.5.23
Remove-When: upstream refuses the pair at argument parsing, or Marlin takes tokens from a dispatch backend
Last-Update: 2026-11-30
"""

from patches.transforms import Insert

EDITS = (
    Insert(
        "sglang/srt/arg_groups/moe_hook.py",
        "handle_a2a_moe",
        "check_expert_dispatch(server_args)",
        module="sglang.srt.utils.expert_dispatch",
        name="check_expert_dispatch",
    ),
)
