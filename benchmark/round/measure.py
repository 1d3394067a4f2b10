"""One server for all widths, whose rounds are pinned to one after the other; whatever happens to a cell is a row.

Prompts are the same for every width and stay cached, so that each is computed once. A server that ends in a cell takes
the rest of that cell's width with it; the other widths go on with the next one.
"""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import requests
from tqdm import tqdm

from benchmark.sweep.config import SweepError
from benchmark.sweep.gpu import Gpus, gpus
from benchmark.sweep.server import Served, reason_in, serve
from benchmark.sweep.setup import describe

from .cell import Row, failed_row, failed_width, measure_cell
from .pinned_width import pin
from .plan import Cell, Plan, Server
from .server import check_chooses, server_config
from .table import Table, text_of

_LAST_WORDS_SECONDS = 10  # in which a server ends whose scheduler has


def measure(plan: Plan, table: Table, deadline: float | None = None) -> tuple[int, int]:
    """Measures what ``table`` lacks, until ``deadline`` (monotonic clock); returns cells that are there, and asked."""
    cells = plan.cells()

    def left() -> list[Cell]:
        return [cell for cell in cells if not table.is_done(plan.key(*cell), plan.digest(cell.width))]

    def late() -> bool:
        return deadline is not None and time.monotonic() > deadline

    bar = tqdm(total=len(cells), initial=len(cells) - len(left()), unit="cell", desc=plan.shape.name)
    with bar, gpus() as boards:
        starts = count(1)
        while (missing := left()) and not late():
            server = plan.servers(missing)[0]
            log = table.folder / "logs" / f"{plan.shape.name}-{plan.shape.layers}-{server.name}-{next(starts)}.log"
            for row in _rows(plan, server, boards, table.folder, log, bar, late):
                table.add({**row, "digest": plan.digest(row["width"])})
                if row["status"] != "ok":
                    bar.write(f"{text_of(row['width'])} x {row['batch'] or 'all'} failed: {row['reason']}")
                bar.update(row["batch"] is not None)
    return len(cells) - len(left()), len(cells)


def _rows(
    plan: Plan, server: Server, boards: Gpus, folder: Path, log: Path, bar: tqdm, late: Callable[[], bool]
) -> Iterator[Row]:
    """Yields a row per cell of ``server`` as long as it lives, and of each width that cannot be measured."""
    pins = folder / "pins"
    config, configuration = server_config(plan, server, folder, pins)
    bar.set_postfix_str(f"{server.name}: starting")
    try:
        with serve(config, configuration, log) as served:
            check_chooses(server, served.info)
            setup = {**describe(configuration, served.info, boards), "flags": configuration.flags}
            for cell in server.cells:
                if late():
                    return
                bar.set_postfix_str(f"{text_of(cell.width)} x {cell.batch}")
                try:
                    if server.speculates:
                        pin(pins, cell.width, cell.accept_length)
                    row = measure_cell(plan, server, cell, served)
                except (requests.RequestException, SweepError) as error:
                    if _has_ended(served, error):
                        reason = f"the server has ended: {reason_in(log)}"
                        yield {**failed_row(plan, cell, reason), "setup": setup}
                        yield failed_width(plan, cell.width, reason)
                        return
                    row = failed_row(plan, cell, " ".join(str(error).split()))
                yield {**row, "setup": setup}
    except SweepError as error:
        for width in dict.fromkeys(cell.width for cell in server.cells):
            yield failed_width(plan, width, str(error))


def _has_ended(served: Served, error: Exception) -> bool:
    """Whether the server is gone, after ``error``. Its connections break before its process ends."""
    if served.process is None:
        return False
    patience = _LAST_WORDS_SECONDS if isinstance(error, requests.RequestException) else 0
    deadline = time.monotonic() + patience
    while served.process.is_running() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not served.process.is_running()
