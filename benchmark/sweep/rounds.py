"""What a server itself counts of its rounds, at ``/server_info``: between two moments, over all of its schedulers.

A server of the fork that verifies trees has ``spec_rounds`` in each entry of ``internal_states``: rounds, verified
nodes, shares of rounds by depth, and the mean time of each stage over the rounds that were timed, all since its start.
Other servers have none. These figures include the warm-up of a cell, so their names begin with ``server_``; the accept
length of a report comes from the requests alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

STAGES = ("draft", "tree_build", "verify", "accept", "commit")


@dataclass(frozen=True)
class Rounds:
    """Counts since a server's start."""

    rounds: int = 0
    verified_nodes: int = 0
    reached: tuple[int, ...] = ()  # rounds that accepted a draft at depth 1, 2, ...
    timed_rounds: int = 0
    stage_ms: tuple[float, ...] = (0.0,) * len(STAGES)  # summed over the timed rounds

    def __add__(self, other: "Rounds") -> "Rounds":
        return self._combine(other, 1)

    def __sub__(self, other: "Rounds") -> "Rounds":
        return self._combine(other, -1)

    def _combine(self, other: "Rounds", sign: int) -> "Rounds":
        return Rounds(
            self.rounds + sign * other.rounds,
            self.verified_nodes + sign * other.verified_nodes,
            tuple(a + sign * b for a, b in zip_longest(self.reached, other.reached, fillvalue=0)),
            self.timed_rounds + sign * other.timed_rounds,
            tuple(a + sign * b for a, b in zip(self.stage_ms, other.stage_ms, strict=True)),
        )


def rounds_in(info: dict[str, Any]) -> Rounds | None:
    """Returns the counts of all schedulers in a ``/server_info``; None where none of them counts rounds."""
    found = [
        _read(state["spec_rounds"])
        for state in info.get("internal_states") or []
        if isinstance(state, dict) and state.get("spec_rounds")
    ]
    return sum(found, Rounds()) if found else None


def server_measures(before: Rounds | None, after: Rounds | None) -> dict[str, Any]:
    """Returns the fields of a row for the rounds between two moments; each is None where the server does not tell.

    ``stage_ms`` maps stages to the mean time of one round in milliseconds. ``server_verify_width`` is nodes per request
    and round, root included. ``server_accepted_at_depth[d]`` is the share of rounds that accepted at depth ``d + 1``.
    """
    spent = after - before if after is not None and before is not None else Rounds()
    timed, counted = spent.timed_rounds > 0, spent.rounds > 0
    return {
        "stage_ms": _named([total / spent.timed_rounds for total in spent.stage_ms]) if timed else None,
        "timed_rounds": spent.timed_rounds if timed else None,
        "server_rounds": spent.rounds if counted else None,
        "server_verify_width": round(spent.verified_nodes / spent.rounds, 2) if counted else None,
        "server_accept_length": round(1 + sum(spent.reached) / spent.rounds, 4) if counted else None,
        "server_accepted_at_depth": [round(count / spent.rounds, 4) for count in spent.reached] if counted else None,
    }


def _read(summary: dict[str, Any]) -> Rounds:
    rounds, timed = summary["rounds"], summary.get("timed_rounds", 0)
    means = summary.get("stage_milliseconds") or {}
    return Rounds(
        rounds,
        summary["verified_nodes"],
        tuple(round(share * rounds) for share in summary["accept_rate_by_depth"]),
        timed,
        tuple(means.get(stage, 0.0) * timed for stage in STAGES),
    )


def _named(values: Sequence[float]) -> dict[str, float]:
    return {stage: round(value, 4) for stage, value in zip(STAGES, values, strict=True)}
