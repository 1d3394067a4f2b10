"""Accept length of a server so far.

Upstream adds the rounds of speculation to its lifetime totals when it logs a decode step, every 40 steps by default,
and reports the totals alone: nothing after a short run, and an old figure after a longer one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler_components.metrics_reporter import SchedulerMetricsReporter


def rounds_so_far(reporter: SchedulerMetricsReporter) -> int:
    """Verified rounds of all requests since the last reset."""
    return reporter.spec_total_num_forward_ct + reporter.spec_num_forward_ct


def tokens_so_far(reporter: SchedulerMetricsReporter) -> int:
    """Tokens that these rounds emitted, bonus tokens counted."""
    return reporter.spec_total_num_accept_tokens + reporter.spec_num_accept_tokens
