"""The whole sweep: each configuration's server in turn, each of its cells, a row for whatever happens."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from tqdm import tqdm

from sglang.bundled_pair.server_process import ServerProcess

from . import load, reference
from .config import Configuration, SweepConfig, SweepError, Workload
from .gpu import Gpus, gpus
from .measures import measure
from .plan import Cell, cell_setup, cells_of
from .prompts import Prompt
from .prompts import load as load_prompts
from .results import Results, Row
from .rounds import Rounds, rounds_in, server_measures
from .server import Served, environment, model_and_draft, reason_in, serve, server_info, start, wait
from .setup import describe

# Rounds at the end of a request are cut short, and a simulated accept length is an average.
_FORCED_TOLERANCE = 0.1
# A server that dies closes its connections a moment before it is gone.
_END_SECONDS = 2


class Sweep:
    """One run of a configuration file into a results folder."""

    def __init__(self, config: SweepConfig, results: Results) -> None:
        """Loads the tokenizer and every prompt, so that an absent data set is found before a server starts."""
        self._config, self._results = config, results
        self._started: dict[str, ServerProcess | None] = {}
        self._lost: dict[str, SweepError] = {}  # of those, what kept them from coming up
        self._plan = {configuration.name: list(cells_of(config, configuration)) for configuration in config.in_order()}
        results.require_same_setup([cell for cells in self._plan.values() for cell in cells])
        self._model, _ = model_and_draft(config)
        self._prompts = self._load_prompts()

    def run(self) -> int:
        """Measures what has no row yet; returns how many rows of this sweep failed."""
        total = sum(map(len, self._plan.values()))
        done = sum(self._results.is_done(cell) for cells in self._plan.values() for cell in cells)
        with (
            tqdm(total=total, initial=done, unit="cell", desc=self._config.name) as bar,
            gpus() as devices,
            ExitStack() as servers,
        ):
            if self._config.together:
                self._start_all(servers)
            for configuration in self._config.in_order():
                self._run_configuration(configuration, devices, bar)
        return sum(row["status"] != "ok" for row in self._results.rows)

    def _start_all(self, servers: ExitStack) -> None:
        """Starts each server that there is work for, and waits for all: one that still loads would slow the others.

        What goes wrong with one is said in its turn; one that cannot be started is tried again then.
        """
        for configuration in self._config.in_order():
            if self._cells_left(configuration) or self._missing_references(configuration):
                with suppress(SweepError):
                    process = servers.enter_context(start(self._config, configuration, self._log_of(configuration)))
                    self._started[configuration.name] = process
        for configuration in self._config.in_order():
            if configuration.name in self._started:
                try:
                    self._wait(configuration)
                except SweepError as error:
                    self._lost[configuration.name] = error

    def _wait(self, configuration: Configuration) -> Served:
        process = self._started[configuration.name]
        return wait(self._config, configuration, process, self._log_of(configuration))

    @contextmanager
    def _server_of(self, configuration: Configuration) -> Iterator[Served]:
        if error := self._lost.get(configuration.name):
            raise error
        if configuration.name in self._started:
            yield self._wait(configuration)
            return
        with serve(self._config, configuration, self._log_of(configuration)) as served:
            yield served

    def _cells_left(self, configuration: Configuration) -> list[Cell]:
        return [cell for cell in self._plan[configuration.name] if not self._results.is_done(cell)]

    def _log_of(self, configuration: Configuration) -> Path:
        return self._results.folder / "logs" / f"{_file_name(configuration.name)}.log"

    def _run_configuration(self, configuration: Configuration, devices: Gpus, bar: tqdm) -> None:
        cells, missing = self._cells_left(configuration), self._missing_references(configuration)
        if not cells and not missing:
            return
        log = self._log_of(configuration)
        bar.set_postfix_str(f"{configuration.name}: starting")
        try:
            with self._server_of(configuration) as served:
                for workload in missing:
                    bar.set_postfix_str(f"{configuration.name} {workload.name}: reference")
                    self._make_reference(configuration, workload, served)
                for cell in cells:
                    bar.set_postfix_str(f"{configuration.name} {cell.workload.name} x{cell.concurrency}")
                    self._results.add(self._measure(cell, served, devices, log))
                    bar.update()
                    if served.process is not None and not served.process.is_running():
                        raise SweepError(f"the server has ended: {reason_in(log)}")
        except SweepError as error:
            # One row for the whole configuration, in the place of the cells that it leaves without one.
            if any(not self._results.is_done(cell) for cell in cells):
                self._results.add(self._failed(configuration, str(error), cells[0].digest))
            bar.write(f"{configuration.name} failed: {error}")

    def _measure(self, cell: Cell, served: Served, devices: Gpus, log: Path) -> Row:
        workload, prompts = cell.workload, self._prompts[cell.workload.name]
        task = load.Load(
            url=served.url,
            model=self._model,
            prompts=prompts,
            requests=workload.requests_at(cell.concurrency),
            concurrency=cell.concurrency,
            sampling_params=workload.sampling_params(),
            seed=self._config.seed + cell.repeat,
        )
        row = self._row(cell, served, devices)
        energy, rounds = devices.energy_j(), _rounds_of(served)
        try:
            with time_limit(self._config.cell_seconds, served):
                records = load.run(task, self._results.folder / "logs" / f"{cell.slug}.log")
        except load.LoadError as error:
            return {**row, **_failure(_with_server(str(error), served, log))}
        failed = [record.error for record in records if record.error]
        if failed or len(records) != task.requests:
            reason = f"{len(failed)} of {task.requests} requests failed: {(failed or ['without an answer'])[0]}"
            return {**row, **_failure(_with_server(reason, served, log))}
        row |= {"status": "ok", "reason": None, **measure(records, prompts)}
        row |= server_measures(rounds, _rounds_of(served))
        memory = None if self._config.together else devices.memory_mib()
        row |= {"gpu_memory_mib": memory, "energy_j": _difference(devices.energy_j(), energy)}
        row |= self._compare(cell, records)
        return {**row, **refuse_wrong_acceptance(cell.configuration, row)}

    def _compare(self, cell: Cell, records: list[load.RequestRecord]) -> dict[str, Any]:
        if cell.configuration.force_accept_length is not None:
            return {"text": None, "text_reason": "accept length is forced, the text is noise"}
        if not cell.workload.greedy:
            return {"text": None, "text_reason": "sampled"}
        references = self._read_reference(cell.workload)
        if references is None:
            return {"text": None, "text_reason": "no plain decoding to compare with"}
        return {"text_reason": None, **reference.compare(references, records, self._config.tie_tolerance)}

    def _row(self, cell: Cell, served: Served, devices: Gpus) -> Row:
        configuration = cell.configuration
        setup = cell_setup(self._config, configuration, cell.workload)
        return {
            "configuration": configuration.name,
            "workload": cell.workload.name,
            "concurrency": cell.concurrency,
            "repeat": cell.repeat,
            "digest": cell.digest,
            "time": _now(),
            "plain": configuration.name == self._config.reference,
            "baseline": configuration.baseline or self._config.reference,
            "tree_budget": configuration.tree_budget or None,
            "verify_width": served.verify_width,
            "forced_accept_length": configuration.force_accept_length,
            "setup": {
                **describe(configuration, served.info, devices),
                **setup,
                "env": environment(self._config, configuration),
                "tie_tolerance": self._config.tie_tolerance,
            },
        }

    def _failed(self, configuration: Configuration, reason: str, digest: str) -> Row:
        empty = {"workload": None, "concurrency": None, "repeat": None}
        return {"configuration": configuration.name, **empty, "digest": digest, "time": _now(), **_failure(reason)}

    def _load_prompts(self) -> dict[str, list[Prompt]]:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            self._model, trust_remote_code=bool(self._config.flags.get("trust-remote-code"))
        )
        most = max(self._config.concurrency)
        return {
            workload.name: load_prompts(workload, tokenizer, self._config.seed, workload.requests_at(most))
            for workload in self._config.workloads
        }

    def _reference_path(self, workload: Workload) -> Path:
        return self._results.folder / "reference" / f"{_file_name(workload.name)}.json"

    def _reference_digest(self, workload: Workload) -> str:
        cells = self._plan[self._config.reference]
        digest = next(cell.digest for cell in cells if cell.workload == workload)
        return f"{digest}-{len(self._prompts[workload.name])}"

    def _read_reference(self, workload: Workload) -> list[reference.Reference] | None:
        if self._config.reference is None:
            return None
        return reference.read(self._reference_path(workload), self._reference_digest(workload))

    def _missing_references(self, configuration: Configuration) -> list[Workload]:
        if configuration.name != self._config.reference:
            return []
        greedy = [workload for workload in self._config.workloads if workload.greedy]
        return [workload for workload in greedy if self._read_reference(workload) is None]

    def _make_reference(self, configuration: Configuration, workload: Workload, served: Served) -> None:
        if served.verify_width is not None:
            raise SweepError(f"{configuration.name} is the reference and speculates: a reference decodes plainly")
        try:
            found = reference.fetch(served.url, self._prompts[workload.name], workload.sampling_params())
        except requests.RequestException as error:
            raise SweepError(f"plain decoding gave no reference for {workload.name}: {error}") from None
        reference.write(self._reference_path(workload), self._reference_digest(workload), found)


@contextmanager
def time_limit(seconds: float, served: Served) -> Iterator[None]:
    """Ends a server started here after ``seconds``, which ends every request to it."""
    if served.process is None:
        yield
        return
    timer = threading.Timer(seconds, served.process.stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def refuse_wrong_acceptance(configuration: Configuration, row: Row) -> dict[str, Any]:
    """A row of numbers that are not what was asked for is a failed one."""
    forced, found = configuration.force_accept_length, row["accept_length"]
    if configuration.speculates and found is None:
        return _failure("the configuration speculates and no answer counts its rounds")
    if forced is None:
        return {}
    least = 1.0 if configuration.chooses_width else forced  # a round of plain decoding brings one token
    if found is None or not least * (1 - _FORCED_TOLERANCE) <= found <= forced * (1 + _FORCED_TOLERANCE):
        return _failure(f"accept length {forced} was to be forced and {found} was measured")
    return {}


def _rounds_of(served: Served) -> Rounds | None:
    try:
        return rounds_in(server_info(served.url))
    except SweepError:  # a server that has ended fails its cell by other means, with a better reason
        return None


def _failure(reason: str) -> dict[str, Any]:
    return {"status": "failed", "reason": " ".join(reason.split())}


def _with_server(reason: str, served: Served, log: Path) -> str:
    if served.process is None:
        return reason
    deadline = time.monotonic() + _END_SECONDS
    while served.process.is_running():
        if time.monotonic() > deadline:
            return reason
        time.sleep(0.05)
    return f"{reason}; the server has ended: {reason_in(log)}"


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else round(after - before, 3)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
