"""Description: Report the accept length of every round until now
  /server_info and /v1/loads divide totals that grow only when a decode step is logged. A run shorter than the log
  interval has no accept length, and a benchmark reads that of the run before.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/managers/scheduler_components/internal_state.py :: SchedulerInternalStateController._average_accept_length
Touches: sglang/srt/managers/scheduler.py :: Scheduler.init_load_inquirer
Applies-To: ==0.5.23
Remove-When: upstream counts the rounds since the last log line too
Last-Update: 2026-11-30
"""  # noqa: E501

from patches.transforms import Replace, expression

_MODULE = "sglang.srt.observability.accept_length"
_STATE = "sglang/srt/managers/scheduler_components/internal_state.py"
_STATE_SCOPE = "SchedulerInternalStateController._average_accept_length"
_SCHEDULER = "sglang/srt/managers/scheduler.py"


def _so_far(file: str, scope: str, reporter: str, field: str, function: str, count: int = 1) -> Replace:
    return Replace(
        file,
        scope,
        expression(f"{reporter}.{field}"),
        f"{function}({reporter})",
        module=_MODULE,
        name=function,
        count=count,
    )


_ROUNDS, _TOKENS = "spec_total_num_forward_ct", "spec_total_num_accept_tokens"
EDITS = (
    _so_far(_STATE, _STATE_SCOPE, "metrics_reporter", _ROUNDS, "rounds_so_far", count=2),
    _so_far(_STATE, _STATE_SCOPE, "metrics_reporter", _TOKENS, "tokens_so_far"),
    _so_far(_SCHEDULER, "Scheduler.init_load_inquirer", "self.metrics_reporter", _ROUNDS, "rounds_so_far"),
    _so_far(_SCHEDULER, "Scheduler.init_load_inquirer", "self.metrics_reporter", _TOKENS, "tokens_so_far"),
)
