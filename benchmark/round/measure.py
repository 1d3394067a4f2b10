"""One server per width, one cell per batch; whatever happens to a cell is a row."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import requests
from tqdm import tqdm

from benchmark.sweep.config import Configuration, Flag, SweepConfig, SweepError, Workload
from benchmark.sweep.gpu import Gpus, gpus
from benchmark.sweep.plan import digest_of
from benchmark.sweep.rounds import Rounds, rounds_in, server_measures
from benchmark.sweep.server import Served, reason_in, serve, server_info
from benchmark.sweep.setup import describe

from .floor import traffic
from .shapes import Shape, write_pair
from .table import SCHEMA, Table

PROBE_TOKENS = 4  # behind these, a server has captured, cached and warmed up what a cell needs
LEAST_ROUNDS, MOST_ROUNDS = 8, 128
LOG_INTERVAL = 2  # rounds between two that the server times
# The largest of a tree's own share of KV: nodes of two rounds in flight, and the tokens that a cell emits.
_HEADROOM = 2


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    shape: Shape
    widths: Sequence[int]
    batches: Sequence[int]
    context: int
    bandwidth_gb_s: float
    bandwidth_source: str
    repeats: int = 3
    cell_seconds: float = 2.0
    seed: int = 1
    flags: dict[str, Flag] = field(default_factory=dict)
    cuda_graphs: bool = False
    startup_seconds: int = 1800
    most_tokens: int = 16384
    """Cells of more tokens a round are left out: their logits alone would take gigabytes."""

    def cells(self) -> list[tuple[int, int]]:
        """Width and batch of every cell, in order."""
        return [(width, batch) for width in self.widths for batch in self.batches_of(width)]

    def batches_of(self, width: int) -> list[int]:
        return [batch for batch in self.batches if width * batch <= self.most_tokens]

    def key(self, width: int, batch: int | None) -> tuple:
        return self.shape.name, self.shape.layers, width, batch, self.context

    def digest(self) -> str:
        """Of everything that changes the numbers, the machine aside."""
        asked = {"config": self.shape.config, "flags": self.flags, "graphs": self.cuda_graphs}
        return digest_of({**asked, "seed": self.seed, "schema": SCHEMA})


def measure(plan: Plan, table: Table, deadline: float | None = None) -> tuple[int, int]:
    """Measures what ``table`` lacks, until ``deadline`` (monotonic clock); returns cells that are there, and asked."""
    cells = plan.cells()
    digest = plan.digest()

    def left(width: int) -> list[int]:
        return [batch for batch in plan.batches_of(width) if not table.is_done(plan.key(width, batch), digest)]

    def late() -> bool:
        return deadline is not None and time.monotonic() > deadline

    missing = sum(len(left(width)) for width in plan.widths)
    bar = tqdm(total=len(cells), initial=len(cells) - missing, unit="cell", desc=plan.shape.name)
    with bar, gpus() as boards:
        for width in plan.widths:
            batches = left(width)
            if not batches or late():
                continue
            bar.set_postfix_str(f"width {width}: starting")
            try:
                for row in _width(plan, width, batches, boards, table.folder, bar):
                    table.add({**row, "digest": digest})
                    bar.update()
                    if late():
                        break
            except SweepError as error:
                table.add({**_failed(plan, width, None, str(error)), "digest": digest})
                bar.write(f"width {width} failed: {error}")
    return len(cells) - sum(len(left(width)) for width in plan.widths), len(cells)


def server_config(plan: Plan, width: int, folder: Path) -> tuple[SweepConfig, Configuration]:
    """Returns the server of one width in the sweep's terms; writes the configurations of target and draft."""
    target, draft = write_pair(plan.shape, folder / "models" / f"{plan.shape.name}-{plan.shape.layers}")
    flags: dict[str, Flag] = {
        "load-format": "dummy",
        "skip-tokenizer-init": True,
        "skip-server-warmup": True,
        "decode-log-interval": LOG_INTERVAL,
        "log-level": "warning",
        "max-running-requests": max(plan.batches_of(width)),
        **({"cuda-graph-bs-decode": plan.batches_of(width)} if plan.cuda_graphs else {}),
        **plan.flags,
    }
    tree = {"speculative-algorithm": "DFLASH", "speculative-dflash-tree-budget": width - 1}
    configuration = Configuration(
        name=f"width {width}",
        flags={**flags, **(tree if width > 1 else {})},
        force_accept_length=1 if width > 1 else None,
    )
    config = SweepConfig(
        name=plan.shape.name,
        model=str(target),
        draft=str(draft),
        seed=plan.seed,
        startup_seconds=plan.startup_seconds,
        workloads=[Workload(name="round", prompts="random")],
        concurrency=list(plan.batches),
        configurations=[configuration],
    )
    return config, configuration


def _width(
    plan: Plan, width: int, batches: Sequence[int], boards: Gpus, folder: Path, bar: tqdm
) -> Iterator[dict[str, Any]]:
    config, configuration = server_config(plan, width, folder)
    log = folder / "logs" / f"{plan.shape.name}-{plan.shape.layers}-width-{width}.log"
    with serve(config, configuration, log) as served:
        setup = {**describe(configuration, served.info, boards), "flags": configuration.flags}
        for batch in batches:
            bar.set_postfix_str(f"width {width} x {batch}")
            try:
                row = _cell(plan, width, batch, served)
            except (requests.RequestException, SweepError) as error:
                said = " ".join(str(error).split())
                ended = served.process is not None and not served.process.is_running()
                row = _failed(plan, width, batch, f"the server has ended: {reason_in(log)}" if ended else said)
            yield {**row, "setup": setup}
            if served.process is not None and not served.process.is_running():
                raise SweepError(f"the server has ended: {reason_in(log)}")


def _cell(plan: Plan, width: int, batch: int, served: Served) -> dict[str, Any]:
    needed = batch * (plan.context + PROBE_TOKENS + MOST_ROUNDS + _HEADROOM * width)
    room = _kv_tokens(served.info)
    if room is not None and needed > room:
        return _failed(plan, width, batch, f"{needed} tokens of KV are needed and the server has {room}")
    prompts = _prompts(plan, batch)
    _seconds(served, prompts, PROBE_TOKENS)
    short = _seconds(served, prompts, PROBE_TOKENS)
    probe = (_seconds(served, prompts, PROBE_TOKENS + LEAST_ROUNDS) - short) / LEAST_ROUNDS
    rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, round(plan.cell_seconds / max(probe, 1e-5))))
    before = rounds_in(server_info(served.url))
    spent = [
        (_seconds(served, prompts, PROBE_TOKENS + rounds) - _seconds(served, prompts, PROBE_TOKENS)) / rounds
        for _ in range(plan.repeats)
    ]
    after = rounds_in(server_info(served.url))
    return _row(plan, width, batch, rounds, [round(1000 * seconds, 4) for seconds in spent], before, after)


def _row(
    plan: Plan,
    width: int,
    batch: int,
    rounds: int,
    round_ms: Sequence[float],
    before: Rounds | None,
    after: Rounds | None,
) -> dict[str, Any]:
    moved = traffic(plan.shape.config, batch, width, plan.context + rounds // 2)
    floor_ms = moved.floor_ms(plan.bandwidth_gb_s)
    told = server_measures(before, after)
    verify_ms = told["stage_ms"]["verify"] if told["stage_ms"] else None
    row = {
        **_base(plan, width, batch),
        "status": "ok",
        "reason": None,
        "round_ms": median(round_ms),
        "round_ms_all": list(round_ms),
        "verify_ms": verify_ms,
        "stage_ms": told["stage_ms"],
        "rounds": rounds,
        "timed_rounds": told["timed_rounds"],
        "accept_length": told["server_accept_length"],
        "floor_ms": round(floor_ms, 6),
        "bytes": {name: round(getattr(moved, name)) for name in ("weights", "kv", "activations")},
        "operations": round(moved.operations),
        "distance": round((verify_ms or median(round_ms)) / floor_ms, 3),
        "bandwidth_gb_s": plan.bandwidth_gb_s,
        "bandwidth_source": plan.bandwidth_source,
    }
    if width > 1 and verify_ms is None:
        return {**row, "status": "failed", "reason": "the server timed no round: is it the fork's?"}
    return row


def _failed(plan: Plan, width: int, batch: int | None, reason: str) -> dict[str, Any]:
    return {**_base(plan, width, batch), "status": "failed", "reason": reason}


def _base(plan: Plan, width: int, batch: int | None) -> dict[str, Any]:
    shape = plan.shape
    return {
        "schema": SCHEMA,
        "shape": shape.name,
        "layers": shape.layers,
        "layers_of_model": shape.layers_of_model,
        "width": width,
        "batch": batch,
        "tokens": None if batch is None else width * batch,
        "context": plan.context,
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


def _kv_tokens(info: dict[str, Any]) -> int | None:
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    return next((state["memory_usage"]["token_capacity"] for state in states if "memory_usage" in state), None)
