"""Rows survive a kill: what is complete is kept, what is torn is measured again."""

from pathlib import Path

import pytest

from benchmark.sweep.config import Configuration, SweepError, Workload
from benchmark.sweep.plan import Cell
from benchmark.sweep.results import FILE, Results, read_rows

from . import rows


def cell(name: str = "plain", concurrency: int = 1, digest: str = "d") -> Cell:
    return Cell(Configuration(name=name), Workload(name="chat", prompts="chat"), concurrency, 0, digest)


def test_torn_last_row_is_dropped_and_the_next_starts_a_line(tmp_path: Path) -> None:
    Results(tmp_path).add(rows.row(concurrency=1))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"configuration": "plain", "concur')
    resumed = Results(tmp_path)
    assert resumed.is_done(cell(concurrency=1)) and not resumed.is_done(cell(concurrency=2))
    resumed.add(rows.row(concurrency=2))
    assert [row["concurrency"] for row in read_rows(tmp_path)] == [1, 2]


def test_torn_row_in_the_middle_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"a": 1}\n{"b"\n{"c": 3}\n')
    with pytest.raises(SweepError, match="line 2 is no JSON"):
        read_rows(tmp_path)


def test_failed_configuration_stands_for_its_cells_until_it_is_dropped(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(rows.row())
    results.add(rows.failed("tree", "the port is taken"))
    assert results.is_done(cell("tree", 1)) and results.is_done(cell("tree", 2))
    results.drop_failed()
    assert not Results(tmp_path).is_done(cell("tree", 1)) and Results(tmp_path).is_done(cell())


def test_rows_of_another_setup_are_refused(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(rows.row())
    results.require_same_setup([cell(digest="d"), cell("chain", digest="e")])
    with pytest.raises(SweepError, match="holds plain on chat measured with other settings"):
        results.require_same_setup([cell(digest="e")])
