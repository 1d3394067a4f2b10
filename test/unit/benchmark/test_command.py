"""Command lines of the benchmarks: one line for each error, and no trace of the program."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sglang.bundled_pair import server_process

PLAIN = {"name": "s", "model": "m", "workloads": [{"name": "w", "prompts": "chat"}], "concurrency": [1],
         "configurations": [{"name": "plain"}]}  # fmt: skip


@pytest.fixture
def said(monkeypatch, capsys) -> Callable[..., str]:
    """Runs a command and returns the one line that it prints before it ends with status 2."""
    monkeypatch.setattr(server_process, "raise_on_stop_signals", lambda: None)  # would last beyond the test

    def run(module: str, *arguments: object) -> str:
        monkeypatch.setattr("sys.argv", [module, *map(str, arguments)])
        assert importlib.import_module(f"{module}.__main__").main() == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        return printed.err.rstrip()

    return run


def test_wrong_key_ends_the_sweep_with_its_name(said, tmp_path: Path) -> None:
    config = tmp_path / "sweep.yaml"
    config.write_text(yaml.safe_dump({**PLAIN, "concurency": [1]}))
    assert said("benchmark.sweep", config) == f"error: {config}: concurency: there is no such key"


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("results.jsonl", None, "has neither rounds.jsonl nor a measured row in results.jsonl; 0 rows failed"),
        ("rounds.jsonl", {"schema": 9}, "has schema 9, known is 3: update the checkout"),
    ],
)
def test_folder_without_results_is_named(said, tmp_path: Path, name: str, rows: dict | None, message: str) -> None:
    (tmp_path / name).write_text("" if rows is None else json.dumps(rows) + "\n")
    assert message in said("benchmark.report", tmp_path)


def test_flag_that_cannot_be_read_is_named(said) -> None:
    line = said("benchmark.round", "tiny", "--flag=--tp-size=2", "--bandwidth", 1)
    assert line == "error: --flag --tp-size=2: write it as NAME=VALUE, such as tp-size=2, or NAME for a bare flag"
