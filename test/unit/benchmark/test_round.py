"""The round cost table: what a round must move, counted by hand, and cells that are measured once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from benchmark.command import BenchmarkError
from benchmark.report.write import write_rounds
from benchmark.round import cell, pinned_width
from benchmark.round import measure as measuring
from benchmark.round.floor import distinct_experts, traffic
from benchmark.round.measure import measure
from benchmark.round.pinned_width import PinnedWidth, pin
from benchmark.round.plan import Plan
from benchmark.round.shapes import LEAST_LAYERS, SHAPES
from benchmark.round.speeds import speeds
from benchmark.round.table import FILE, Table, at, read_table
from benchmark.sweep.config import SweepError
from benchmark.sweep.rounds import STAGES
from benchmark.sweep.server import Served

DENSE = {
    "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 32, "dtype": "float32",
}  # fmt: skip


def test_dense_round_moves_its_weights_once_and_each_prefix_once() -> None:
    # A layer: q, k and v 8 x 16, o 8 x 8, gate and up 8 x 32, down 16 x 8: 128 + 64 + 256 + 128 = 576 weights.
    one, many = traffic(DENSE, 1, 1, 100), traffic(DENSE, 3, 5, 100)
    assert one.weights == 4 * (2 * 576 + 8 * 32 + 8)
    assert many.weights == 4 * (2 * 576 + 8 * 32 + 15 * 8)
    # Keys and values: 8 numbers a layer and token.
    assert one.kv == 4 * 2 * 8 * (100 + 1) and many.kv == 4 * 2 * 8 * (300 + 15)
    # In and out of a layer's products: 8 + 16, 8 + 8, 8 + 32, 16 + 8; the head 8 + 32.
    assert one.activations == 4 * (2 * (24 + 16 + 40 + 24) + 40) and many.activations == 15 * one.activations
    # Products, and scores and values: 2 heads of 4 over each token that is seen.
    assert one.operations == 2 * (2 * 576 + 8 * 32 + 2 * 2 * 8 * 101)
    assert one.floor_ms(1.0) == pytest.approx(one.total / 1e6)


def test_experts_are_read_as_often_as_tokens_reach_them() -> None:
    assert distinct_experts(8, 2, 1) == pytest.approx(2)
    assert distinct_experts(8, 2, 2) == pytest.approx(8 * (1 - 0.75**2))
    sparse = {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
    # A layer: attention 192, router 8 x 8, experts 8 x 8 and 4 x 8 each.
    assert traffic(sparse, 1, 1, 0).weights == 4 * (2 * (192 + 64 + 2 * 96) + 8 * 32 + 8)


@pytest.mark.parametrize(
    ("shape", "weights"), [("qwen3-8b", 15.1e9), ("qwen3-30b-a3b", 60.4e9), ("kimi-k2.6", 106.5e9)]
)
def test_shapes_weigh_what_their_models_weigh(shape: str, weights: float) -> None:
    # Without the embedding: published 8.2 billion parameters and 30.5 billion, two bytes each; Kimi's cut by hand.
    assert traffic(SHAPES[shape].config, 8, 256, 0).weights == pytest.approx(weights, rel=0.02)
    assert SHAPES[shape].layers >= LEAST_LAYERS


def plan(**changes) -> Plan:
    defaults = {"widths": [1, 9], "batches": [1, 2], "context": 8, "repeats": 2, "cell_seconds": 0.01}
    return Plan(SHAPES["tiny"], **{**defaults, **changes}, bandwidth_gb_s=10.0, bandwidth_source="given")


class Server:
    """Stands in for a server: a token takes as many ms by its clock as its width has, every second round is timed."""

    def __init__(self, ms: dict[int, float]) -> None:
        self.ms, self.overhead_ms = ms, 7.0
        self.by_width = dict.fromkeys(ms, 0)
        self.widths: list[int] = []  # none: without speculation
        self.pinned: PinnedWidth | None = None
        self.starts: list[list[int]] = []
        self.asked: list[tuple[int, int]] = []
        self.broken: tuple[int, int] | None = None
        self.chooses = True
        self.chosen = 9  # the width of a round where it may choose

    def start(self, configuration) -> None:
        self.widths = configuration.flags.get("speculative-dflash-widths", [])
        self.starts.append(self.widths)
        if 3 in self.widths:
            raise SweepError("the server ended with status 1 at start-up")
        self.pinned = PinnedWidth(Path(configuration.env[pinned_width.FILE])) if self.widths else None

    def info(self, url: str) -> dict:
        rounds = sum(self.by_width.values())
        spec = {
            "rounds": rounds, "verified_nodes": 0, "accept_rate_by_depth": [0.0],
            "rounds_by_width": {str(width): count for width, count in self.by_width.items() if count},
            "timed_rounds": rounds // 2, "stage_milliseconds": dict.fromkeys(STAGES, 1.0) if rounds else {},
            "widths": {"emitted_by_width": dict.fromkeys(map(str, self.widths))},
        }  # fmt: skip
        if not self.chooses:
            del spec["widths"]
        state = {"memory_usage": {"token_capacity": 2000}}
        return {"internal_states": [{**state, "spec_rounds": spec} if self.widths else state]}

    def seconds(self, served, prompts, tokens: int) -> float:
        width = self.pinned.of(len(prompts), self.widths) or self.chosen if self.pinned else 1
        if (width, len(prompts)) == self.broken:
            raise requests.ConnectionError("refused")
        self.asked.append((width, len(prompts)))
        rounds = tokens / min(width, self.pinned.accept_length()) if self.pinned else tokens
        self.by_width[width] += rounds * len(prompts)
        return 0.001 * (self.overhead_ms + self.ms[width] * rounds)


@pytest.fixture
def server(monkeypatch) -> Server:
    """What all servers are; one with a width of 3 does not start."""
    only = Server({1: 2.0, 2: 3.0, 9: 5.0})

    @contextmanager
    def serve(config, configuration, log) -> Iterator[Served]:
        only.start(configuration)
        yield Served("url", only.info("url"), None)

    monkeypatch.setattr(measuring, "serve", serve)
    monkeypatch.setattr(measuring, "describe", lambda configuration, info, boards: {"sglang": "9"})
    monkeypatch.setattr(cell, "server_info", only.info)
    monkeypatch.setattr(cell, "_seconds", only.seconds)
    return only


def test_cells_are_rows_with_time_floor_and_distance(server, tmp_path: Path) -> None:
    assert measure(plan(), Table(tmp_path)) == (4, 4)
    rows = read_table(tmp_path)
    assert [(row["width"], row["batch"], row["status"]) for row in rows] == [
        (1, 1, "ok"), (1, 2, "ok"), (9, 1, "ok"), (9, 2, "ok"),
    ]  # fmt: skip
    assert server.starts == [[1, 9]]
    plain, tree = at(rows, width=1, batch=2)[0], at(rows, width=9, batch=2)[0]
    assert plain["round_ms"] == pytest.approx(2.0) and plain["verify_ms"] is None and not plain["plain_server"]
    assert tree["round_ms"] == pytest.approx(5.0) and tree["verify_ms"] == pytest.approx(1.0)
    assert (plain["server_verify_width"], tree["server_verify_width"]) == (1, 9)
    assert tree["accept_length"] == 1.0 and tree["tokens"] == 18 and len(tree["round_ms_all"]) == 2
    assert tree["distance"] == pytest.approx(tree["verify_ms"] / tree["floor_ms"], rel=1e-3)
    assert plain["distance"] == pytest.approx(plain["round_ms"] / plain["floor_ms"], rel=1e-3)


def test_a_cheap_cell_is_four_requests_and_one_of_slow_rounds_three(server, tmp_path: Path) -> None:
    measure(plan(widths=[9], batches=[1], repeats=1, cell_seconds=1.0), Table(tmp_path / "fast"))
    assert len(server.asked) == 4
    measure(plan(widths=[9], batches=[1], repeats=1, cell_seconds=0.01), Table(tmp_path / "slow"))
    assert len(server.asked) == 4 + 3
    (row,) = read_table(tmp_path / "slow")
    assert row["rounds"] == 8 and row["round_ms_all"] == [pytest.approx(5.0)]


def test_rounds_take_as_long_as_what_is_subtracted(server, tmp_path: Path) -> None:
    server.overhead_ms = 100.0
    measure(plan(widths=[9], batches=[1], cell_seconds=0.01), Table(tmp_path))
    (row,) = read_table(tmp_path)
    assert row["rounds"] == (100 + 4 * 5) / 5 and row["round_ms"] == pytest.approx(5.0)


def test_plain_decoding_alone_is_a_server_without_speculation(server, tmp_path: Path) -> None:
    measure(plan(widths=[1]), Table(tmp_path))
    (row, _) = read_table(tmp_path)
    assert server.starts == [[]] and row["plain_server"] and row["server_verify_width"] is None
    measure(plan(plain_server=True), Table(tmp_path))
    assert server.starts == [[], [1, 9]]  # the first rows stand


def test_measured_cells_are_not_measured_again(server, tmp_path: Path) -> None:
    measure(plan(widths=[9], batches=[1]), Table(tmp_path))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"schema": 1, "shape": "ti')  # as a kill leaves it
    server.asked.clear()
    assert measure(plan(widths=[9, 2]), Table(tmp_path)) == (4, 4)
    assert set(server.asked) == {(9, 2), (2, 1), (2, 2)} and len(read_table(tmp_path)) == 4
    assert server.starts == [[1, 9], [1, 2, 9]]
    assert measure(plan(widths=[9, 2]), Table(tmp_path)) == (4, 4) and len(server.starts) == 2
    assert measure(plan(widths=[2], seed=2), Table(tmp_path)) == (2, 2)
    assert server.starts[2:] == [[1, 2]] and len(read_table(tmp_path)) == 4  # the later row of a key stands


def test_failures_are_rows_and_the_others_go_on(server, tmp_path: Path) -> None:
    server.broken = 1, 1
    assert measure(plan(widths=[1, 9], batches=[1, 64]), Table(tmp_path)) == (4, 4)
    reasons = {(row["width"], row["batch"]): row["reason"] for row in read_table(tmp_path)}
    assert reasons[1, 1] == "refused" and reasons[9, 1] is None
    assert reasons[9, 64] == "11008 tokens of KV are needed and the server has 2000"
    table = Table(tmp_path)
    table.drop_failed()
    assert [(row["width"], row["batch"]) for row in Table(tmp_path).rows] == [(9, 1)]


def test_server_that_does_not_start_is_a_failed_row_of_each_width(server, tmp_path: Path) -> None:
    assert measure(plan(widths=[1, 3]), Table(tmp_path)) == (4, 4)
    rows = {(row["width"], row["batch"]): row["reason"] for row in read_table(tmp_path)}
    assert rows == dict.fromkeys([(1, None), (3, None)], "the server ended with status 1 at start-up")


def test_server_that_ends_takes_its_width_along_and_the_next_one_goes_on(server, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measuring, "_has_ended", lambda served, error: True)
    monkeypatch.setattr(measuring, "reason_in", lambda log: f"out of memory ({log.name})")
    server.broken = 9, 1
    assert measure(plan(widths=[9, 2]), Table(tmp_path)) == (4, 4)
    reasons = {(row["width"], row["batch"]): row["reason"] for row in read_table(tmp_path)}
    reason = "the server has ended: out of memory (tiny-4-widths-1.log)"
    assert reasons == {(9, 1): reason, (9, None): reason, (2, 1): None, (2, 2): None}
    assert server.starts == [[1, 2, 9], [1, 2]]


def test_server_that_cannot_choose_its_width_is_an_error(server, tmp_path: Path) -> None:
    server.chooses = False
    measure(plan(widths=[9]), Table(tmp_path))
    (row,) = read_table(tmp_path)
    assert (
        row["batch"] is None and "auto was asked for with widths 1 9, and the server chooses from none" in row["reason"]
    )


def test_row_of_other_rounds_than_the_pinned_ones_has_failed(server, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measuring, "pin", lambda folder, *_: pin(folder, 2))
    measure(plan(widths=[9, 2], batches=[1]), Table(tmp_path))
    wide, narrow = read_table(tmp_path)
    assert narrow["status"] == "ok" and wide["status"] == "failed" and wide["server_verify_width"] == 2
    assert wide["reason"] == "rounds of 2 were verified and 9 was pinned: did the server load the plugin?"


def test_cells_of_too_many_tokens_are_left_out(server, tmp_path: Path) -> None:
    few = plan(widths=[1, 9], batches=[1, 2, 4], most_tokens=20)
    assert [cell[:2] for cell in few.cells()] == [(1, 1), (1, 2), (1, 4), (9, 1), (9, 2)]
    assert measure(few, Table(tmp_path)) == (5, 5)


def test_every_width_and_the_choice_are_measured_at_each_forced_length(server, tmp_path: Path) -> None:
    few = plan(widths=[1, 2, 9], accept_lengths=[2.0, 4.0])
    assert measure(few, Table(tmp_path)) == (6 + 12, 18) and server.starts == [[1, 2, 9]]
    rows = read_table(tmp_path)
    by_width = {row["width"]: row for row in at(rows, forced_accept_length=4.0, batch=2)}
    # Ten tokens of two requests at 3 ms for two of them, at 5 ms for four.
    assert by_width[2]["tok_s"] == pytest.approx(2 * 2 / 0.003, rel=1e-3)
    assert by_width[9]["tok_s"] == by_width[None]["tok_s"] == pytest.approx(2 * 4 / 0.005, rel=1e-3)
    assert by_width[None]["share_by_width"] == {"9": 1.0} and "round_ms" not in by_width[None]
    assert measure(few, Table(tmp_path)) == (18, 18) and len(server.starts) == 1
    assert [row["tok_s"] for row in at(rows, width=1, batch=2)] == [pytest.approx(2 / 0.002, rel=1e-3)]


def test_speed_is_over_plain_decoding_and_the_choice_over_the_best(server, tmp_path: Path) -> None:
    server.chosen = 2
    measure(plan(widths=[1, 2, 9], accept_lengths=[1.2, 4.0]), Table(tmp_path))
    rows = read_table(tmp_path)
    slow, fast = speeds(rows)
    assert (slow.accept_length, fast.accept_length, fast.batches) == (1.2, 4.0, [1, 2])
    assert slow.over_plain[2][1] == pytest.approx(1.2 * 2 / 3, rel=1e-3)
    assert slow.auto_over_best(1) == pytest.approx(0.8, rel=1e-3)  # plain decoding is the best
    assert fast.auto_over_best(2) == pytest.approx((2 / 3) / (4 / 5), rel=1e-3)
    page = write_rounds(tmp_path, "rounds", rows).read_text()
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png"))) == 4
    assert "where a round accepts 1.2 tokens" in page
    assert "| auto over the best | 0.83 | 0.83 |" in (tmp_path / "table.md").read_text()


def test_no_cell_starts_when_time_is_over(server, tmp_path: Path) -> None:
    assert measure(plan(), Table(tmp_path), deadline=time.monotonic() - 1) == (0, 4)
    assert not (tmp_path / FILE).exists()


def test_table_has_a_report(server, tmp_path: Path) -> None:
    measure(plan(), Table(tmp_path))
    measure(plan(widths=[3]), Table(tmp_path))
    page = write_rounds(tmp_path, "rounds", read_table(tmp_path)).read_text()
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png"))) == 2
    assert "tiny, 4 layers, 8 tokens before" in page and "the server ended with status 1" in page
    assert "10 GB/s (given)" in page
    assert "| 9 | 1 (" in (tmp_path / "table.md").read_text()
    with pytest.raises(BenchmarkError, match="no row was measured: the table is empty"):
        write_rounds(tmp_path, "rounds", [])


def test_table_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"schema": 4}\n')
    with pytest.raises(BenchmarkError, match="has schema 4, known is 3"):
        read_table(tmp_path)
