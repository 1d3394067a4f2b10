"""A sweep of plain decoding, a chain and a tree on the tiny pair, killed, resumed, compared and drawn; a round cost."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from benchmark.round.table import read_table
from benchmark.sweep.results import read_rows

ROOT = Path(__file__).parents[2]
SECONDS = 900  # what a loaded machine may need; alone it takes about a minute


def write_config(folder: Path, pair, *, together: bool = False) -> Path:
    dflash = {"speculative-algorithm": "DFLASH"}
    config = {
        "name": "tiny",
        "together": together,
        "model": str(pair.target),
        "draft": str(pair.draft),
        "flags": {"dtype": "float32", "max-total-tokens": 4096, "skip-server-warmup": True, "decode-log-interval": 2},
        "workloads": [
            {"name": "chat", "prompts": "chat", "requests": 4, "output_tokens": 16, "ignore_eos": True},
        ],
        "concurrency": [1, 2],
        "reference": "plain",
        "tie_tolerance": 0.001,
        "configurations": [
            {"name": "chain", "flags": dflash},
            {"name": "tree", "flags": {**dflash, "speculative-dflash-tree-budget": 8}},
            {"name": "plain"},
        ],
    }
    path = folder / f"tiny-{together}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", *map(str, arguments)]


def kill_after(rows: int, sweep: subprocess.Popen, results: Path) -> list[psutil.Process]:
    """Kills ``sweep`` once it has written ``rows`` rows; returns every process that it had started."""
    deadline = time.monotonic() + SECONDS
    while len(read_rows(results)) < rows:
        assert sweep.poll() is None, f"the sweep ended with status {sweep.returncode}"
        assert time.monotonic() < deadline, f"no {rows} rows within {SECONDS} s"
        time.sleep(0.1)
    children = psutil.Process(sweep.pid).children(recursive=True)
    sweep.kill()
    sweep.wait()
    return children


def test_sweep_goes_on_after_a_kill_and_is_drawn(tiny_pair, tmp_path: Path) -> None:
    config, results = write_config(tmp_path, tiny_pair()), tmp_path / "results"
    run = command("benchmark.sweep", config, "--out", results)
    with (tmp_path / "first.log").open("w") as log:
        sweep = subprocess.Popen(run, cwd=ROOT, stdout=log, stderr=log)
        children = kill_after(2, sweep, results)
    assert children, "a server was running"
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "no server outlives its sweep"
    before = (results / "results.jsonl").read_text()

    run = command("benchmark.sweep", write_config(tmp_path, tiny_pair(), together=True), "--out", results)
    resumed = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert "6 rows, 0 of them failed" in resumed.stdout
    assert (results / "results.jsonl").read_text().startswith(before)
    rows = {(row["configuration"], row["concurrency"]): row for row in read_rows(results)}
    assert list(rows) == [(name, level) for name in ("plain", "chain", "tree") for level in (1, 2)]
    for (name, _), row in rows.items():
        assert row["text"] == "same" and row["text_same"] == 4, row
        assert row["output_tokens"] == 4 * 16 and row["output_tok_s"] > 0 and row["ttft_ms_p50"] > 0
        assert row["verify_width"] == {"plain": None, "chain": 4, "tree": 9}[name]
        assert (row["accept_length"] is None) == (name == "plain")
        assert (row["stage_ms"] is not None and row["server_verify_width"] == 9) == (name == "tree")
        assert row["setup"]["sglang"] and row["setup"]["torch"] and row["setup"]["flags"]["dtype"] == "float32"
    # A tree holds more candidates than its best chain, and this draft's best is almost never right.
    assert rows["tree", 1]["accept_length"] >= rows["chain", 1]["accept_length"] >= 1

    report = subprocess.run(command("benchmark.report", results), cwd=ROOT, capture_output=True, text=True)
    assert report.returncode == 0, report.stderr
    assert {path.name for path in results.glob("*.png")} >= {"chat-throughput.png", "chat-round-stages.png"}
    assert "text as plain" in (results / "report.html").read_text()
    assert "| tree | 9 |" in (results / "table.md").read_text()


def test_one_server_verifies_every_cell_of_a_tiny_shape_at_its_own_width(tmp_path: Path) -> None:
    choices = ("--widths", 1, 5, 3, "--batches", 1, 4, "--context", 32, "--repeats", 1, "--cell-seconds", 0.1)
    choices += ("--accept-lengths", 2.5)
    run = command("benchmark.round", "tiny", *choices, "--bandwidth", 50, "--out", tmp_path)
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0 and "12 of 12 cells, 0 failed" in done.stdout, done.stderr[-3000:]
    rows, forced = read_table(tmp_path)[:6], read_table(tmp_path)[6:]
    assert [(row["server_verify_width"], row["batch"]) for row in rows] == [
        (width, batch) for width in (1, 5, 3) for batch in (1, 4)
    ]
    assert [log.name for log in (tmp_path / "logs").iterdir()] == ["tiny-4-widths-1.log"]
    for row in rows:
        assert row["accept_length"] == 1.0 and row["stage_ms"]["verify"] > 0 and row["timed_rounds"] > 0
        assert row["width"] == 1 or 0 < row["floor_ms"] < row["verify_ms"] < row["round_ms"]
    for row in forced:
        assert row["width"] is None or row["server_verify_width"] == row["width"]
        chosen = {width for width, share in row.get("share_by_width", {}).items() if share}
        assert chosen <= {"1", "3", "5"} and bool(chosen) == (row["width"] is None)
        # Of all rounds, the first ones of its requests among them; a chosen width of 1 emits one token.
        assert row["width"] is None or row["accept_length"] == pytest.approx(2.5, rel=0.1)
