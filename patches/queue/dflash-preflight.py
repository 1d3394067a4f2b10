"""Description: Check a DFLASH launch before weights are loaded
  Wrong pairs, draft folders, flags and attention backends end the launching process with one line each, where upstream
  fails in a model process, minutes later and with its stack trace. No extension point runs between the choice of the
  attention backend and the speculative arguments; resolution hooks run only for plugins.
Origin: vendor
Forwarded: no, the checks follow this fork's support matrix
Touches: sglang/srt/arg_groups/speculative_hook.py :: handle_speculative_decoding
Touches: sglang/srt/arg_groups/attention_hook.py :: handle_attention_backend_compatibility
Touches: sglang/launch_server.py :: run_server
Applies-To: ==0.5.23
Remove-When: upstream checks draft, target and attention backend in the launching process
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate, Insert

_PREFLIGHT = "sglang.srt.speculative.dflash_preflight"

EDITS = (
    Insert(
        "sglang/srt/arg_groups/speculative_hook.py",
        "handle_speculative_decoding",
        "check_dflash_launch(server_args)",
        module=_PREFLIGHT,
        name="check_dflash_launch",
        where="start",
    ),
    # Earlier than the rest: upstream's assertion for flex_attention would come first, and names no other backend.
    Insert(
        "sglang/srt/arg_groups/attention_hook.py",
        "handle_attention_backend_compatibility",
        "check_attention_backends(server_args)",
        module=_PREFLIGHT,
        name="check_attention_backends",
        where="start",
    ),
    Decorate("sglang/launch_server.py", "run_server", "exit_on_launch_error", module="sglang.srt.utils.launch_error"),
)
