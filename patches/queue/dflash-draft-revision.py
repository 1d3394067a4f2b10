"""Description: Read the draft's config at the revision that was asked for
  The config that decides the speculative algorithm was read at the hub's default revision and without
  --json-model-override-args; every later reader honours both.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/arg_groups/speculative_hook.py :: handle_speculative_decoding
Applies-To: ==0.5.23
Remove-When: _resolve_speculative_algorithm_alias is given the draft's revision
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, expression

EDITS = (
    Replace(
        "sglang/srt/arg_groups/speculative_hook.py",
        "handle_speculative_decoding",
        expression("{}"),
        "draft_config_arguments(cfg)",
        module="sglang.srt.speculative.dflash_draft_checkpoint",
        name="draft_config_arguments",
    ),
)
