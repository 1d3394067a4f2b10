"""One cell: a batch of requests whose rounds all have one width, and the row that comes of it."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import requests

from benchmark.sweep.config import SweepError
from benchmark.sweep.rounds import rounds_in, server_measures
from benchmark.sweep.server import Served, server_info

from .floor import traffic
from .plan import LEAST_ROUNDS, PROBE_TOKENS, Cell, Plan, Server
from .server import kv_room
from .table import SCHEMA

Row = dict[str, Any]
_LEARNING_ROUNDS = 96


def measure_cell(plan: Plan, server: Server, cell: Cell, served: Served) -> Row:
    """Returns the row of ``cell``, whose width and accept length are those of the server's rounds by now.

    A repeat is the difference of two requests, of which one has more rounds; a short one may serve two repeats. A
    server that chooses gets a request before, in which it learns what widths cost here and what the draft is worth.
    Raises requests.RequestException or SweepError.
    """
    needed, room = server.kv_tokens(cell.batch), kv_room(served.info)
    if room is not None and needed > room:
        return failed_row(plan, cell, f"{needed} tokens of KV are needed and the server has {room}")
    prompts = _prompts(plan, cell.batch)

    def tokens(rounds: int) -> int:
        return round(rounds * cell.emitted)

    def seconds(rounds: int) -> float:
        return _seconds(served, prompts, PROBE_TOKENS + tokens(rounds))

    def of_a_round(rounds: int, short: float) -> float:
        return (seconds(rounds) - short) / tokens(rounds) * cell.emitted

    if cell.width is None:
        seconds(min(_LEARNING_ROUNDS, cell.most_rounds))
    seconds(0)  # behind it the prompts are cached, and rounds have the pinned width
    before = server_info(served.url)
    short = seconds(0)
    probe = of_a_round(LEAST_ROUNDS, short)
    # What is subtracted varies from request to request, so rounds take at least as long.
    rounds = min(cell.most_rounds, max(LEAST_ROUNDS, round(max(plan.cell_seconds, short) / max(probe, 1e-5))))
    spent = [of_a_round(rounds, short) if rounds > LEAST_ROUNDS else probe]
    while len(spent) < plan.repeats:
        spent.append(of_a_round(rounds, seconds(0)))
    after = server_info(served.url)
    round_ms = [round(1000 * each, 4) for each in spent]
    row = _row(plan, cell, rounds, round_ms, server_measures(rounds_in(before), rounds_in(after)))
    if not server.speculates:
        return row
    by_width = _requests_by_width(after) - _requests_by_width(before)
    return {**row, **_verified(cell, row["stage_ms"], by_width)}


def failed_row(plan: Plan, cell: Cell, reason: str) -> Row:
    """Returns the row of a cell that could not be measured."""
    return {**_base(plan, cell.width, cell.batch, cell.accept_length), "status": "failed", "reason": reason}


def failed_width(plan: Plan, width: int | None, reason: str) -> Row:
    """Returns the row of a whole width that could not be measured."""
    return {**_base(plan, width, None, None), "status": "failed", "reason": reason}


def _row(plan: Plan, cell: Cell, rounds: int, round_ms: Sequence[float], told: Row) -> Row:
    return {
        **_base(plan, cell.width, cell.batch, cell.accept_length),
        "status": "ok",
        "reason": None,
        "tok_s": round(1000 * cell.batch * cell.emitted / median(round_ms), 2),
        **(_cost(plan, cell.width, cell.batch, rounds, round_ms, told) if cell.width else {}),
        "stage_ms": told["stage_ms"],
        "timed_rounds": told["timed_rounds"],
        "server_verify_width": None,
        "accept_length": told["server_accept_length"],
    }


def _cost(plan: Plan, width: int, batch: int, rounds: int, round_ms: Sequence[float], told: Row) -> Row:
    """Fields of a row whose rounds are all of one width."""
    moved = traffic(plan.shape.config, batch, width, plan.context + rounds // 2)
    floor_ms = moved.floor_ms(plan.bandwidth_gb_s)
    verify_ms = told["stage_ms"]["verify"] if told["stage_ms"] and width > 1 else None
    return {
        "round_ms": median(round_ms),
        "round_ms_all": list(round_ms),
        "verify_ms": verify_ms,
        "rounds": rounds,
        "floor_ms": round(floor_ms, 6),
        "bytes": {name: round(getattr(moved, name)) for name in ("weights", "kv", "activations")},
        "operations": round(moved.operations),
        "distance": round((verify_ms or median(round_ms)) / floor_ms, 3),
        "bandwidth_gb_s": plan.bandwidth_gb_s,
        "bandwidth_source": plan.bandwidth_source,
    }


def _verified(cell: Cell, stage_ms: dict[str, float] | None, requests_by_width: Counter[int]) -> Row:
    """Fields of a row for what the server verified, with a failure if that is not what was asked for."""
    width = cell.width
    nodes, count = sum(each * n for each, n in requests_by_width.items()), requests_by_width.total()
    verified = {"server_verify_width": round(nodes / count, 2) if count else None}
    if width is None:
        shares = {str(each): round(n / count, 4) for each, n in sorted(requests_by_width.items()) if n}
        return {**verified, "share_by_width": shares}
    if set(requests_by_width) != {width}:
        found = " ".join(map(str, sorted(requests_by_width))) or "no width"
        reason = f"rounds of {found} were verified and {width} was pinned: did the server load the plugin?"
        return {**verified, "status": "failed", "reason": reason}
    if stage_ms is None:
        return {**verified, "status": "failed", "reason": "the server timed no round: is it the fork's?"}
    return verified


def _requests_by_width(info: dict[str, Any]) -> Counter[int]:
    """Rounds of a request by their width since the server's start, over all of its schedulers."""
    total: Counter[int] = Counter()
    for state in info.get("internal_states") or []:
        spec = (state.get("spec_rounds") or {}) if isinstance(state, dict) else {}
        total.update({int(width): count for width, count in spec.get("rounds_by_width", {}).items()})
    return total


def _base(plan: Plan, width: int | None, batch: int | None, forced: float | None) -> Row:
    shape = plan.shape
    return {
        "schema": SCHEMA,
        "shape": shape.name,
        "layers": shape.layers,
        "layers_of_model": shape.layers_of_model,
        "width": width,
        "batch": batch,
        "forced_accept_length": forced,
        "tokens": None if None in (width, batch) else width * batch,
        "context": plan.context,
        "plain_server": plan.is_plain(width),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _prompts(plan: Plan, batch: int) -> list[list[int]]:
    """The same for every width, and those of a batch the first of a larger one's, so that most of them are cached."""
    vocab = plan.shape.config["vocab_size"]
    return [random.Random(f"{plan.seed} {index}").choices(range(10, vocab), k=plan.context) for index in range(batch)]


def _seconds(served: Served, prompts: Sequence[Sequence[int]], tokens: int) -> float:
    """Time of one batch of ``tokens`` new tokens each. Raises requests.RequestException or SweepError."""
    body = {
        "input_ids": prompts,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True},
    }
    begin = time.perf_counter()
    response = requests.post(f"{served.url}/generate", json=body, timeout=3600)
    seconds = time.perf_counter() - begin
    if response.status_code >= 400:
        raise SweepError(f"the server answered {response.status_code}: {response.text[:300]}")
    emitted = {answer["meta_info"]["completion_tokens"] for answer in response.json()}
    if emitted != {tokens}:
        raise SweepError(f"{tokens} tokens were asked for and {sorted(emitted)} came")
    return seconds
