"""A whole sweep over stub servers: every configuration ends as rows, and none ends the sweep."""

import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark.sweep.config import Configuration, SweepConfig, SweepError
from benchmark.sweep.results import Results, read_rows
from benchmark.sweep.rounds import STAGES
from benchmark.sweep.run import Sweep, refuse_wrong_acceptance, time_limit
from harness.tiny_tokenizer import build_tiny_tokenizer

from . import stub_server
from .stub_server import Stub

PLAIN = {"completion_tokens": 4}
CHAIN = {"completion_tokens": 4, "spec_verify_ct": 1, "spec_num_correct_drafts": 2,
         "spec_correct_drafts_histogram": [0, 0, 1]}  # fmt: skip
INFO = {"version": "9.9", "speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def dead_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def sweep(model: str, urls: dict[str, str], folder: Path, **changes) -> tuple[int, dict[str, dict]]:
    workload = {"name": "chat", "prompts": "chat", "requests": 2, "output_tokens": 4}
    configurations = [{"name": name, "url": url} for name, url in urls.items()]
    config = SweepConfig.model_validate({
        "name": "s", "model": model, "workloads": [workload], "concurrency": [1], "reference": "plain",
        "configurations": configurations, **changes,
    })  # fmt: skip
    failed = Sweep(config, Results(folder)).run()
    return failed, {row["configuration"]: row for row in read_rows(folder)}


@pytest.mark.parametrize(
    "budget, found, refused",
    [
        (16, 2.9, False),
        (16, 2.4, True),
        (16, None, True),
        ("auto", 2.4, False),
        ("auto", 1.0, False),
        ("auto", 3.6, True),
    ],
)
def test_an_accept_length_that_was_not_forced_is_no_result(budget, found, refused) -> None:
    """With `auto` some rounds decode plainly."""
    flags = {"speculative-algorithm": "DFLASH", "speculative-dflash-tree-budget": budget}
    configuration = Configuration(name="forced", flags=flags, force_accept_length=3)
    assert bool(refuse_wrong_acceptance(configuration, {"accept_length": found})) is refused


def test_garbage_is_marked_and_an_absent_server_is_a_row(model: str, tmp_path: Path) -> None:
    with (
        stub_server.serve(Stub([PLAIN] * 2)) as plain,
        stub_server.serve(Stub([CHAIN] * 2, info=INFO)) as chain,
        stub_server.serve(Stub([CHAIN] * 2, info=INFO, token=6)) as garbage,
    ):
        urls = {"garbage": garbage.url, "dead": dead_url(), "chain": chain.url, "plain": plain.url}
        failed, rows = sweep(model, urls, tmp_path)
    assert failed == 1
    assert list(rows) == ["plain", "garbage", "dead", "chain"]  # the reference comes first
    assert rows["chain"]["text"] == "same" and rows["chain"]["accept_length"] == 3.0
    assert rows["chain"]["verify_width"] == 8 and rows["chain"]["setup"]["sglang"] == "9.9"
    assert rows["garbage"]["text"] == "different" and rows["garbage"]["text_different"] == 2
    assert rows["dead"]["status"] == "failed" and rows["dead"]["workload"] is None
    assert rows["dead"]["reason"].startswith("no server answers at http://127.0.0.1:")


def test_row_has_the_stage_times_of_its_own_rounds(model: str, tmp_path: Path) -> None:
    spec = {"rounds": 8, "verified_nodes": 64, "accept_rate_by_depth": [0.5], "timed_rounds": 4,
            "stage_milliseconds": dict.fromkeys(STAGES, 2.0)}  # fmt: skip
    later = {**spec, "rounds": 16, "verified_nodes": 128, "timed_rounds": 8,
             "stage_milliseconds": dict.fromkeys(STAGES, 3.0)}  # fmt: skip
    with stub_server.serve(Stub([PLAIN] * 2)) as plain, stub_server.serve(Stub([CHAIN] * 2, info=INFO)) as tree:
        tree.internal_states = [{"spec_rounds": spec}]
        tree.later_states = [{"spec_rounds": later}]
        _, rows = sweep(model, {"plain": plain.url, "tree": tree.url}, tmp_path)
    assert rows["tree"]["stage_ms"] == dict.fromkeys(STAGES, 4.0) and rows["tree"]["server_verify_width"] == 8
    assert rows["plain"]["stage_ms"] is None and rows["plain"]["server_rounds"] is None


def test_finished_cells_are_not_measured_again(model: str, tmp_path: Path) -> None:
    with stub_server.serve(Stub([PLAIN] * 2)) as plain:
        sweep(model, {"plain": plain.url}, tmp_path)
        asked = len(plain.asked)
        sweep(model, {"plain": plain.url}, tmp_path)
        assert len(plain.asked) == asked
        sweep(model, {"plain": plain.url}, tmp_path, repeats=2)
        assert len(plain.asked) == asked + 3  # one warm-up, two requests; the reference is there
    with stub_server.serve(Stub([PLAIN] * 2)) as other, pytest.raises(SweepError, match="measured with other settings"):
        sweep(model, {"plain": other.url}, tmp_path)


def test_failed_requests_fail_their_cell_with_a_reason(model: str, tmp_path: Path) -> None:
    with stub_server.serve(Stub([PLAIN] * 2, finish=False)) as plain:
        failed, rows = sweep(model, {"plain": plain.url}, tmp_path)
    assert failed == 1 and rows["plain"]["concurrency"] == 1
    assert rows["plain"]["reason"] == "2 of 2 requests failed: the answer ended before the request did"


def test_servers_that_start_together_are_all_up_before_one_is_measured(model: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    waiting = tmp_path / "python"  # ends once both of them run
    waiting.write_text(
        f"#!/bin/sh\necho $$ >> {started}\nwhile [ $(wc -l < {started}) -lt 2 ]; do sleep 0.05; done\nexit 3\n"
    )
    waiting.chmod(0o755)
    configurations = [{"name": name, "python": str(waiting)} for name in ("plain", "other")]
    failed, rows = sweep(model, {}, tmp_path / "rows", together=True, startup_seconds=60, configurations=configurations)
    assert failed == 2 and len(started.read_text().split()) == 2
    assert all("ended with status 3" in row["reason"] for row in rows.values())


def test_none_is_measured_while_another_of_them_still_loads(model: str, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\nsleep 1\ntouch {loaded}\nexit 3\n")
    slow.chmod(0o755)
    had_loaded: list[bool] = []

    class Asked(list):
        def append(self, request: dict) -> None:
            had_loaded.append(loaded.exists())

    with stub_server.serve(Stub([PLAIN] * 2, asked=Asked())) as plain:
        configurations = [{"name": "plain", "url": plain.url}, {"name": "other", "python": str(slow)}]
        sweep(model, {}, tmp_path / "rows", together=True, startup_seconds=60, configurations=configurations)
    assert had_loaded and all(had_loaded)


def test_reference_that_speculates_is_refused(model: str, tmp_path: Path) -> None:
    with stub_server.serve(Stub([CHAIN] * 2, info=INFO)) as chain:
        _, rows = sweep(model, {"plain": chain.url}, tmp_path)
    assert rows["plain"]["reason"] == "plain is the reference and speculates: a reference decodes plainly"


def test_absent_data_set_ends_the_sweep_before_a_server_is_asked(model: str, tmp_path: Path) -> None:
    workload = {"name": "mine", "prompts": str(tmp_path / "absent.jsonl")}
    with pytest.raises(SweepError, match="workload mine: the data set .* cannot be read"):
        sweep(model, {"plain": dead_url()}, tmp_path, workloads=[workload])


DYING_SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        print("RuntimeError: out of memory", flush=True)
        os._exit(1)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_server_that_dies_under_load_fails_its_cells_and_the_sweep_goes_on(model: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(DYING_SERVER)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "server.py"} "$@"\n')
    os.chmod(python, 0o755)
    with stub_server.serve(Stub([PLAIN] * 2)) as plain:
        configurations = [
            {"name": "dies", "python": str(python)},
            {"name": "plain", "url": plain.url},
            {"name": "again", "url": plain.url},
        ]
        sweep(model, {}, tmp_path / "out", configurations=configurations, concurrency=[1, 2])
    rows = [(row["configuration"], row["concurrency"], row["status"]) for row in read_rows(tmp_path / "out")]
    died = [("dies", 1, "failed"), ("dies", None, "failed")]
    assert rows == [("plain", 1, "ok"), ("plain", 2, "ok"), *died, ("again", 1, "ok"), ("again", 2, "ok")]
    reasons = [row["reason"] for row in read_rows(tmp_path / "out") if row["status"] == "failed"]
    assert all("the server has ended: RuntimeError: out of memory" in reason for reason in reasons)


def test_cell_beyond_its_time_ends_its_server() -> None:
    ended = []
    served = SimpleNamespace(process=SimpleNamespace(stop=lambda: ended.append("late")))
    with time_limit(60, served):
        pass
    assert not ended
    with time_limit(0.01, served):
        time.sleep(0.5)
    assert ended == ["late"]
