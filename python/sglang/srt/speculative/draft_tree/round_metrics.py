"""What the rounds of a server accepted, per depth, and how long their stages take: /server_info and Prometheus.

Upstream's own figures (accept length, accept rate, the histogram in `meta_info`) hold for trees too; its number of
draft tokens is the verify width.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang.srt.speculative.draft_tree.stage_times import StageTimes

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler_components.internal_state import SchedulerInternalStateController
    from sglang.srt.managers.scheduler_components.metrics_reporter import SchedulerMetricsReporter


class RoundMetrics:
    """Counts since the start of the server; a request counts once a round.

    Args:
        path_length: nodes on the longest path, root included.
        stage_times: the worker's.
    """

    def __init__(self, path_length: int, stage_times: StageTimes) -> None:
        self._by_width: Counter[int] = Counter()  # requests of the rounds that verified this many nodes each
        self._by_accepted = [0] * path_length  # index: accepted drafts of a request in a round
        self._stage_times = stage_times
        self._exported: Counter[tuple[str, tuple]] = Counter()  # by name and further labels
        # What chose the widths and why, where they are chosen.
        self.choices: Callable[[], dict[str, Any]] | None = None

    def verified(self, bs: int, width: int) -> None:
        """One round began: `width` nodes of each of `bs` requests, roots included."""
        self._by_width[width] += bs

    def count(self, accepted_drafts: list[int]) -> None:
        """One round: the accepted drafts of each of its requests."""
        for accepted in accepted_drafts:
            self._by_accepted[accepted] += 1

    @property
    def nodes(self) -> int:
        return sum(width * requests for width, requests in self._by_width.items())

    @property
    def rounds(self) -> int:
        return sum(self._by_accepted)

    def reached(self) -> list[int]:
        """How many rounds accepted a draft at depth 1, 2, ..."""
        return [sum(self._by_accepted[depth:]) for depth in range(1, len(self._by_accepted))]

    def summary(self) -> dict[str, Any]:
        """`accept_length` counts the bonus token; `accept_rate_by_depth` is the share of rounds that got so deep.

        `stage_milliseconds` are means over `timed_rounds` rounds of whole batches.
        """
        rounds, reached = self.rounds, self.reached()
        return {
            "rounds": rounds,
            "verified_nodes": self.nodes,
            "rounds_by_width": {str(width): count for width, count in sorted(self._by_width.items())},
            "accept_length": 1 + sum(reached) / rounds if rounds else None,
            "accept_rate_by_depth": [count / rounds for count in reached] if rounds else [],
            "stage_milliseconds": self._stage_times.mean_milliseconds(),
            "timed_rounds": self._stage_times.rounds,
            **({"widths": self.choices()} if self.choices is not None else {}),
        }

    def export(self, labels: dict[str, str]) -> None:
        """Bring the Prometheus counters of this process up to date."""
        counters = _counters(tuple(labels))
        totals = {("nodes", ()): self.nodes}
        totals |= {("depth", (("depth", str(depth)),)): n for depth, n in enumerate(self.reached(), start=1)}
        totals |= {("width", (("width", str(width)),)): n for width, n in self._by_width.items()}
        for (name, extra), total in totals.items():
            counters[name].labels(**labels, **dict(extra)).inc(total - self._exported[name, extra])
            self._exported[name, extra] = total
        for stage, milliseconds in self._stage_times.mean_milliseconds().items():
            counters["stage"].labels(**labels, stage=stage).set(milliseconds / 1e3)


@functools.lru_cache(maxsize=1)
def _counters(label_names: tuple[str, ...]) -> dict[str, Any]:
    # Late: upstream sets the folder of the multi-process mode before the first metric exists.
    import prometheus_client

    return {
        "depth": prometheus_client.Counter(
            "sglang:spec_accepted_depth_total",
            "Rounds of speculation in which a request accepted a draft token of this depth.",
            [*label_names, "depth"],
        ),
        "nodes": prometheus_client.Counter(
            "sglang:spec_verified_nodes_total",
            "Nodes that verification has seen, roots included.",
            list(label_names),
        ),
        "width": prometheus_client.Counter(
            "sglang:spec_verified_width_total",
            "Rounds of speculation of a request that verified this many nodes of it; 1 is plain decoding.",
            [*label_names, "width"],
        ),
        "stage": prometheus_client.Gauge(
            "sglang:spec_stage_seconds",
            "Mean time of a stage of the decode round, over the rounds that were measured.",
            [*label_names, "stage"],
            multiprocess_mode="mostrecent",
        ),
    }


def shows_rounds(add_speculative: Callable) -> Callable:
    """Wrap `SchedulerInternalStateController._add_speculative`: /server_info gets `spec_rounds`."""

    @functools.wraps(add_speculative)
    def add(self: SchedulerInternalStateController, state: dict[str, Any]) -> None:
        add_speculative(self, state)
        metrics = _round_metrics(self.scheduler)
        if metrics is not None:
            state["spec_rounds"] = metrics.summary()

    return add


def exports_rounds(report_decode_stats: Callable) -> Callable:
    """Wrap `SchedulerMetricsReporter.report_decode_stats`, which upstream calls after every decode step."""

    @functools.wraps(report_decode_stats)
    def report(self: SchedulerMetricsReporter, *args, **kwargs):
        result = report_decode_stats(self, *args, **kwargs)
        if self.enable_metrics and self.forward_ct_decode % self.decode_log_interval == 0:
            metrics = _round_metrics(self.scheduler)
            if metrics is not None:
                metrics.export(self.metrics_collector.labels)
        return result

    return report


def _round_metrics(scheduler: Any) -> RoundMetrics | None:
    """Of the draft, or of a pipeline stage without one."""
    counting = scheduler.draft_worker or getattr(scheduler, "draft_tree_stage", None)
    return getattr(counting, "round_metrics", None)
