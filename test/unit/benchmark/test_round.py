"""The round cost table: what a round must move, counted by hand, and cells that are measured once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from benchmark.command import BenchmarkError
from benchmark.report.write import write_rounds
from benchmark.round import measure as measuring
from benchmark.round.floor import distinct_experts, traffic
from benchmark.round.measure import Plan, measure, server_config
from benchmark.round.shapes import LEAST_LAYERS, SHAPES
from benchmark.round.table import FILE, Table, at, read_table
from benchmark.sweep.config import SweepError
from benchmark.sweep.rounds import STAGES
from benchmark.sweep.server import Served, command

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


def test_server_of_a_width_verifies_a_tree_with_one_node_less(tmp_path: Path) -> None:
    words = command(*server_config(plan(), 9, tmp_path), 4000)
    assert words[words.index("--speculative-dflash-tree-budget") + 1] == "8" and "--load-format" in words
    plain, configuration = server_config(plan(), 1, tmp_path)
    assert configuration.force_accept_length is None
    assert not [word for word in command(plain, configuration, 4000) if word.startswith("--speculative")]


class Server:
    """Stands in for a server: a token takes ``ms`` by its clock, every second round is timed."""

    def __init__(self, width: int, ms: float) -> None:
        self.width, self.ms, self.rounds, self.asked, self.dead = width, ms, 0, 0, False

    def info(self, url: str) -> dict:
        spec = {
            "rounds": self.rounds, "verified_nodes": self.rounds * self.width, "accept_rate_by_depth": [0.0],
            "timed_rounds": self.rounds // 2, "stage_milliseconds": dict.fromkeys(STAGES, self.ms / 5),
        }  # fmt: skip
        state = {"memory_usage": {"token_capacity": 2000}}
        return {"internal_states": [{**state, "spec_rounds": spec} if self.width > 1 else state]}

    def seconds(self, served, prompts, tokens: int) -> float:
        if self.dead:
            raise requests.ConnectionError("refused")
        self.asked += 1
        self.rounds += tokens * len(prompts)
        return 0.001 * (7 + self.ms * tokens)


@pytest.fixture
def servers(monkeypatch) -> dict[int, Server]:
    """Servers by width; a width that is missing does not start."""
    found = {1: Server(1, 2.0), 9: Server(9, 5.0)}

    @contextmanager
    def serve(config, configuration, log) -> Iterator[Served]:
        width = 1 + int(configuration.flags.get("speculative-dflash-tree-budget", 0))
        if width not in found:
            raise SweepError("the server ended with status 1 at start-up")
        monkeypatch.setattr(measuring, "server_info", found[width].info)
        monkeypatch.setattr(measuring, "_seconds", found[width].seconds)
        yield Served("url", found[width].info("url"), None)

    monkeypatch.setattr(measuring, "serve", serve)
    monkeypatch.setattr(measuring, "describe", lambda configuration, info, boards: {"sglang": "9"})
    return found


def test_cells_are_rows_with_time_floor_and_distance(servers, tmp_path: Path) -> None:
    assert measure(plan(), Table(tmp_path)) == (4, 4)
    rows = read_table(tmp_path)
    assert [(row["width"], row["batch"], row["status"]) for row in rows] == [
        (1, 1, "ok"), (1, 2, "ok"), (9, 1, "ok"), (9, 2, "ok"),
    ]  # fmt: skip
    plain, tree = at(rows, width=1, batch=2)[0], at(rows, width=9, batch=2)[0]
    assert plain["round_ms"] == pytest.approx(2.0) and plain["verify_ms"] is None
    assert tree["round_ms"] == pytest.approx(5.0) and tree["verify_ms"] == pytest.approx(1.0)
    assert tree["accept_length"] == 1.0 and tree["tokens"] == 18
    assert tree["distance"] == pytest.approx(tree["verify_ms"] / tree["floor_ms"], rel=1e-3)
    assert plain["distance"] == pytest.approx(plain["round_ms"] / plain["floor_ms"], rel=1e-3)


def test_measured_cells_are_not_measured_again(servers, tmp_path: Path) -> None:
    measure(plan(widths=[1]), Table(tmp_path))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"schema": 1, "shape": "ti')  # as a kill leaves it
    asked = servers[1].asked
    assert measure(plan(), Table(tmp_path)) == (4, 4)
    assert servers[1].asked == asked and len(read_table(tmp_path)) == 4
    assert measure(plan(widths=[1], seed=2), Table(tmp_path)) == (2, 2)
    assert servers[1].asked > asked and len(read_table(tmp_path)) == 4  # the later row of a key stands


def test_failures_are_rows_and_the_others_go_on(servers, tmp_path: Path) -> None:
    servers[1].dead = True
    assert measure(plan(widths=[3, 1, 9], batches=[1, 64]), Table(tmp_path)) == (6, 6)
    reasons = {(row["width"], row["batch"]): row["reason"] for row in read_table(tmp_path)}
    assert reasons[3, None] == "the server ended with status 1 at start-up"
    assert reasons[1, 1] == "refused" and reasons[9, 1] is None
    assert reasons[9, 64] == "10112 tokens of KV are needed and the server has 2000"
    table = Table(tmp_path)
    table.drop_failed()
    assert [(row["width"], row["batch"]) for row in Table(tmp_path).rows] == [(9, 1)]


def test_cells_of_too_many_tokens_are_left_out(servers, tmp_path: Path) -> None:
    few = plan(widths=[1, 9], batches=[1, 2, 4], most_tokens=20, cuda_graphs=True)
    assert few.cells() == [(1, 1), (1, 2), (1, 4), (9, 1), (9, 2)]
    words = command(*server_config(few, 9, tmp_path), 4000)
    at = words.index("--cuda-graph-bs-decode")
    assert words[at : at + 3] == ["--cuda-graph-bs-decode", "1", "2"]
    assert words[words.index("--max-running-requests") + 1] == "2"
    assert measure(few, Table(tmp_path)) == (5, 5)


def test_no_cell_starts_when_time_is_over(servers, tmp_path: Path) -> None:
    assert measure(plan(), Table(tmp_path), deadline=time.monotonic() - 1) == (0, 4)
    assert not (tmp_path / FILE).exists()


def test_table_has_a_report(servers, tmp_path: Path) -> None:
    measure(plan(widths=[1, 3, 9]), Table(tmp_path))
    page = write_rounds(tmp_path, "rounds", read_table(tmp_path)).read_text()
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png"))) == 2
    assert "tiny, 4 layers, 8 tokens before" in page and "the server ended with status 1" in page
    assert "10 GB/s (given)" in page
    assert "| 9 | 1 (" in (tmp_path / "table.md").read_text()
    with pytest.raises(BenchmarkError, match="no row was measured: the table is empty"):
        write_rounds(tmp_path, "rounds", [])


def test_table_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"schema": 2}\n')
    with pytest.raises(BenchmarkError, match="has schema 2, known is 1"):
        read_table(tmp_path)
