"""Servers of the round cost table: one for all widths, its memory, and the plugin that pins the width of its rounds."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark.round import pinned_width
from benchmark.round.floor import traffic
from benchmark.round.pinned_width import PinnedWidthError, environment_of_pins, pin
from benchmark.round.plan import Cell, Plan
from benchmark.round.server import memory_fraction, server_config
from benchmark.round.shapes import SHAPES
from benchmark.sweep.server import command, environment
from sglang.srt.speculative.draft_tree import forced_acceptance, width_graphs
from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths, WidthChooser
from sglang.srt.speculative.draft_tree.width_controller import WidthController
from sglang.srt.speculative.draft_tree.width_relay import WidthChoice


def plan(**changes) -> Plan:
    defaults = {"widths": [1, 9], "batches": [1, 2], "context": 8}
    return Plan(SHAPES["tiny"], **{**defaults, **changes}, bandwidth_gb_s=10.0, bandwidth_source="given")


def words_of(asked: Plan, folder: Path, cells: list[Cell] | None = None) -> list[list[str]]:
    """Command lines of the servers of a plan, or of some of its cells."""
    servers = asked.servers(asked.cells() if cells is None else cells)
    return [command(*server_config(asked, server, folder, folder / "pins"), 4000) for server in servers]


def after(words: list[str], flag: str) -> list[str]:
    """The values of a flag."""
    rest = words[words.index(flag) + 1 :]
    end = next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))
    return rest[:end]


def test_one_server_has_all_widths_and_plain_decoding(tmp_path: Path) -> None:
    (words,) = words_of(plan(widths=[9, 3]), tmp_path)
    assert after(words, "--speculative-dflash-tree-budget") == ["auto"] and "--load-format" in words
    assert after(words, "--speculative-dflash-widths") == ["1", "3", "9"]
    (words,) = words_of(plan(), tmp_path, [Cell(1, 2)])  # a server that chooses needs a second width
    assert after(words, "--speculative-dflash-widths") == ["1", "9"]
    (words,) = words_of(plan(widths=[1]), tmp_path)
    assert not [word for word in words if word.startswith("--speculative")]


def test_plain_decoding_may_have_a_server_of_its_own(tmp_path: Path) -> None:
    asked = plan(plain_server=True)
    plain, trees = asked.servers(asked.cells())
    assert plain.widths == (1,) and trees.widths == (1, 9)
    assert environment(*server_config(asked, plain, tmp_path, tmp_path / "pins")) == {}
    assert environment(*server_config(asked, trees, tmp_path, tmp_path / "pins"))["SGLANG_SIMULATE_ACC_LEN"] == "1.0"
    assert asked.digest(1) != plan().digest(1) and asked.digest(9) == plan().digest(9)


@pytest.mark.parametrize(
    ("shape", "layers", "least", "most"),
    [("qwen3-8b", None, 0.55, 0.85), ("qwen3-30b-a3b", None, 0.72, 0.85), ("kimi-k2.6", 3, 0.5, 0.85)],
)
def test_weights_and_prompts_of_the_widest_table_fit_a_gpu_of_141_gb(shape, layers, least, most) -> None:
    of = SHAPES[shape].cut(layers) if layers else SHAPES[shape]
    asked = Plan(of, (1, 16, 256), (1, 16, 256), 1024, 1.0, "given", gpu_memory_mib=143771, most_tokens=4096)
    (server,) = asked.servers(asked.cells())
    # Two bytes a weight, the draft's keys and values of one layer of 8 heads beside the target's.
    kv = traffic(of.config, 1, 1, 0).kv + 2 * 2 * 8 * 128
    needed = (traffic(of.config, 256, 16, 0).weights + server.kv_tokens(256) * kv) / (143771 << 20)
    assert needed <= least <= memory_fraction(asked, server, 143771) <= most


def test_gpu_server_captures_the_cells_and_keeps_kv_for_them(tmp_path: Path) -> None:
    few = plan(widths=[1, 9], batches=[1, 2, 5], context=8192, most_tokens=20, gpu_memory_mib=143771)
    (words,) = words_of(few, tmp_path)
    assert after(words, "--cuda-graph-bs-decode") == ["1", "2", "5"]
    assert after(words, "--cuda-graph-backend-prefill") == ["disabled"]
    # 8192 + 4 + 128 tokens, two draft blocks of 16; a quarter more.
    assert after(words, "--max-total-tokens") == [str(int(1.25 * 5 * (8324 + 2 * 16)))]
    given = plan(gpu_memory_mib=143771, flags={"cuda-graph-backend-prefill": "full"})
    assert after(words_of(given, tmp_path)[0], "--cuda-graph-backend-prefill") == ["full"]


@pytest.fixture
def loaded(monkeypatch, tmp_path: Path):
    """The plugin in this process, for rounds of up to 8192 tokens."""
    replaced = [(FollowedWidths, "follow"), (FollowedWidths, "of"), (WidthChooser, "next_width")]
    constants = [(width_graphs, "MAX_VERIFY_TOKENS"), (forced_acceptance, "SIMULATE_ACC_LEN")]
    for owner, name in [*replaced, *constants]:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    for name, value in environment_of_pins(tmp_path, 8192).items():
        monkeypatch.setenv(name, value)
    pinned_width.load()


class Chooser:
    """What the plugin's choice reads of a WidthChooser."""

    class _Nothing:
        @staticmethod
        def collect():
            yield "a measure"

    clock = emitted = _Nothing

    class _controller:
        widths = (1, 16, 64)


def test_rounds_have_the_pinned_width_and_no_other_than_a_batch_may_use(loaded, tmp_path: Path) -> None:
    pin(tmp_path, 64)
    assert WidthChooser.next_width(Chooser, 128, 1) == 64  # of 8192 tokens; a server without the plugin has 4096
    pin(tmp_path, 16)
    assert WidthChooser.next_width(Chooser, 128, 64) == 16
    pin(tmp_path, 64)
    with pytest.raises(PinnedWidthError, match="a width of 64 is pinned for 129 requests, which may use 1 16"):
        WidthChooser.next_width(Chooser, 129, 16)
    pin(tmp_path, 8)
    with pytest.raises(PinnedWidthError, match="a width of 8 is pinned for 1 requests, which may use 1 16 64"):
        WidthChooser.next_width(Chooser, 1, 16)


class Costs:
    """What the plugin reads of the file of costs."""

    @staticmethod
    def is_due() -> bool:
        raise AssertionError("costs of forced rounds would be written")


def test_server_that_chooses_knows_the_costs_and_nothing_of_the_draft(loaded, tmp_path: Path) -> None:
    chooser = WidthChooser.__new__(WidthChooser)
    chooser.clock = chooser.emitted = SimpleNamespace(collect=lambda: iter(()))
    chooser._costs_file, chooser._controller = Costs(), (first := WidthController((1, 16, 64), 16))
    for seconds, width in [(1.0, 1), (1.1, 16), (2.0, 64)] * 3:
        first.add_cost(4, width, seconds)
    first.add_emitted(16, 4, [4.0, 4.0, 4.0], [4.0, 4.0, 4.0])
    pin(tmp_path, None, 3.0)
    chooser.next_width(4, 16)
    fresh = chooser._controller
    assert fresh is not first and fresh.costs() == {} and fresh.accept_lengths.mean(16) is None
    chooser.next_width(4, 16)
    assert chooser._controller is fresh
    for length in (5.0, 7.0):  # two cells on, nothing of these being measured anew
        pin(tmp_path, None, length)
        chooser.next_width(4, 16)
        known = chooser._controller.summary()["batch_classes"]["4"]["milliseconds_by_width"]
        assert chooser._controller is not fresh and known == {"1": 1000.0, "16": 1100.0, "64": 2000.0}


def test_acceptance_is_forced_to_the_length_beside_the_width_on_every_rank(loaded, tmp_path: Path) -> None:
    for length in (1.0, 2.5):
        pin(tmp_path, 16, length)
        FollowedWidths((1, 16)).of(2)
        assert length == forced_acceptance.SIMULATE_ACC_LEN


def test_only_pinned_choices_count_for_batches_of_every_size(loaded, tmp_path: Path) -> None:
    pin(tmp_path, None)
    widths = FollowedWidths((1, 16, 64))
    widths.follow(WidthChoice(128, 16))
    assert [widths.of(bs) for bs in (2, 128)] == [1, 16]


def test_smaller_batches_on_the_way_to_a_full_one_follow_as_well(loaded, tmp_path: Path) -> None:
    pin(tmp_path, 16)
    widths = FollowedWidths((1, 16, 64))
    widths.follow(WidthChoice(2, 64))
    widths.follow(WidthChoice(128, 16))
    assert [widths.of(bs) for bs in (1, 2, 40, 128)] == [16] * 4
