"""A wrong file ends with one line that names the key; a cell's digest follows what changes its numbers."""

from pathlib import Path

import pytest
import yaml

from benchmark.sweep.config import Configuration, SweepConfig, SweepError, load_config
from benchmark.sweep.plan import cells_of

CONFIGS = Path(__file__).parents[3] / "benchmark" / "configs"
SMALL = {
    "name": "small",
    "model": "target",
    "draft": "draft",
    "workloads": [{"name": "chat", "prompts": "chat"}],
    "concurrency": [1, 2],
    "reference": "plain",
    "configurations": [{"name": "plain"}, {"name": "chain", "flags": {"speculative-algorithm": "DFLASH"}}],
}


def write(folder: Path, **changes) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concurency": [1]}, "concurency: there is no such key"),
        ({"workloads": [{"name": "a", "prompts": "chat", "tokens": 3}]}, "workloads.0.tokens: there is no such key"),
        ({"concurrency": [0]}, "concurrency.0: Input should be greater than or equal to 1"),
        ({"reference": "slow"}, "reference slow is no configuration; there are plain, chain"),
        ({"draft": None}, "configuration chain speculates: give the draft with the key draft"),
        ({"configurations": [{"name": "plain"}, {"name": "plain"}]}, "names must differ, plain stands there twice"),
        ({"configurations": [{"name": "plain", "url": "http://x", "env": {"A": "1"}}]}, "leave out flags, env"),
        ({"configurations": [{"name": "plain", "baseline": "x"}]}, "baseline x of plain is no configuration"),
    ],
)
def test_wrong_key_is_one_line(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(SweepError) as caught:
        load_config(write(tmp_path, **changes))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), ("a: [1", "is no YAML"), ("3", "dictionary")])
def test_absent_or_broken_file_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "sweep.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SweepError) as caught:
        load_config(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_ready_made_file_is_valid(path: Path) -> None:
    config = load_config(path)
    assert config.reference and config.in_order()[0].name == config.reference
    assert not config.in_order()[0].speculates


def digests(**changes) -> dict[str, str]:
    config = SweepConfig.model_validate({**SMALL, **changes})
    return {way.name: next(iter(cells_of(config, way))).digest for way in config.configurations}


def test_digest_follows_what_a_cell_measures() -> None:
    before = digests()
    assert before["plain"] != before["chain"]
    assert digests(concurrency=[4], repeats=2, startup_seconds=5) == before
    assert digests(seed=2)["plain"] != before["plain"]
    other_draft = digests(draft="another")
    assert other_draft["plain"] == before["plain"] and other_draft["chain"] != before["chain"]


def test_width_that_is_chosen_per_round_is_no_budget() -> None:
    ways = [Configuration(name="t", flags={"speculative-dflash-tree-budget": budget}) for budget in (16, "auto")]
    assert [way.tree_budget for way in ways] == [16, 0]


def test_requests_grow_with_the_level_and_sampling_is_complete() -> None:
    workload = SweepConfig.model_validate(
        {**SMALL, "workloads": [{"name": "a", "prompts": "chat", "requests": 6, "requests_per_slot": 2}]}
    ).workloads[0]
    assert [workload.requests_at(level) for level in (1, 3, 8)] == [6, 6, 16]
    assert set(workload.sampling_params()) == {
        "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "ignore_eos",
    }  # fmt: skip
