"""R38, R40: one cell under the release's load generator, against a stub server that plays its known traps."""

import json
from pathlib import Path

import pytest

from benchmark.sweep import load
from benchmark.sweep.measures import measure
from benchmark.sweep.prompts import Prompt
from harness.tiny_tokenizer import build_tiny_tokenizer

from . import stub_server

PROMPTS = [Prompt((10, 11, 12), "coding"), Prompt((13, 14), "writing")]
SAMPLING = {"max_new_tokens": 12, "temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "ignore_eos": False}
LONG = {
    "completion_tokens": 11,
    "spec_verify_ct": 2,
    "spec_num_correct_drafts": 8,
    "spec_accept_length": 5.5,
    "spec_correct_drafts_histogram": [0, 0, 0, 0, 2],
}
SHORT = {
    "completion_tokens": 9,
    "spec_verify_ct": 8,
    "spec_num_correct_drafts": 0,
    "spec_accept_length": 1.125,
    "spec_correct_drafts_histogram": [8],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def run(stub: stub_server.Stub, model: str, folder: Path, requests: int = 3) -> list[load.RequestRecord]:
    task = load.Load(stub.url, model, PROMPTS, requests, 2, SAMPLING, seed=1)
    return load.run(task, folder / "logs" / "cell.log")


def test_r38_accept_length_is_of_this_run_s_requests_and_of_no_gauge(model: str, tmp_path: Path) -> None:
    # The averages that servers report: of no rank, of another rank, of another run.
    gauges = [{"avg_spec_accept_length": value} for value in (None, None, 2.90, 3.67, None)]
    with stub_server.serve(stub_server.Stub([LONG, SHORT, LONG], gauges)) as stub:
        records = run(stub, model, tmp_path)
    assert [record.error for record in records] == ["", "", ""]
    row = measure(records, PROMPTS)
    assert row["accept_length"] == round(1 + 16 / 12, 4) and row["rounds"] == 12
    assert row["accept_length_by_category"] == {"coding": 5.0, "writing": 1.0}
    assert row["output_tokens"] == 31 and records[0].output_ids == [5] * 11
    generator = json.loads((tmp_path / "logs" / "cell.jsonl").read_text())
    assert generator["accept_length"] is None  # the generator reads the first rank alone, which knows nothing


def test_r38_two_runs_on_one_server_do_not_mix(model: str, tmp_path: Path) -> None:
    with stub_server.serve(stub_server.Stub([LONG, SHORT, LONG])) as stub:
        run(stub, model, tmp_path)
        stub.counts = [SHORT, SHORT, SHORT]
        assert measure(run(stub, model, tmp_path), PROMPTS)["accept_length"] == 1.0
    assert len({request["rid"] for request in stub.asked if "rid" in request}) == 6


def test_r40_every_request_carries_all_sampling_fields_and_its_own_prompt(model: str, tmp_path: Path) -> None:
    with stub_server.serve(stub_server.Stub([LONG, SHORT, LONG])) as stub:
        run(stub, model, tmp_path)
    counted = sorted((request for request in stub.asked if "rid" in request), key=lambda request: request["rid"])
    assert [request["sampling_params"] for request in counted] == [SAMPLING] * 3
    assert [tuple(request["input_ids"]) for request in counted] == [PROMPTS[i % 2].input_ids for i in range(3)]
    assert len(stub.asked) - len(counted) == 2  # the warm-up, as many as run at once


def test_r38_answers_without_counts_give_no_accept_length(model: str, tmp_path: Path) -> None:
    with stub_server.serve(stub_server.Stub([{"completion_tokens": 4}] * 3)) as stub:
        row = measure(run(stub, model, tmp_path), PROMPTS)
    assert row["accept_length"] is None and row["rounds"] == 0 and row["output_tokens"] == 12


def test_answer_that_breaks_off_is_an_error_of_its_request(model: str, tmp_path: Path) -> None:
    with stub_server.serve(stub_server.Stub([LONG, SHORT, LONG], finish=False)) as stub:
        records = run(stub, model, tmp_path)
    assert {record.error for record in records} == {"the answer ended before the request did"}


def test_dead_server_is_one_line(model: str, tmp_path: Path) -> None:
    with stub_server.serve(stub_server.Stub([LONG] * 3)) as stub:
        pass
    with pytest.raises(load.LoadError) as caught:
        run(stub, model, tmp_path)
    assert "Cannot connect to host" in str(caught.value) and "\n" not in str(caught.value)
