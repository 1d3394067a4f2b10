"""Prompts come from every shape of file, in an order that the seed decides, and texts made by repetition are found."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.sweep.config import SweepError, Workload
from benchmark.sweep.prompts import load, read_messages, repeats_itself
from harness.tiny_tokenizer import build_tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tiny_tokenizer()


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "hello", "category": "writing"},
        {"turns": ["hello", "and then?"], "category": "writing"},
        {"conversations": [{"from": "system", "value": "be brief"}, {"from": "human", "value": "hello"}],
         "category": "writing"},
        {"conversation": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
         "category": "writing"},
    ],
    ids=["prompt", "speed-bench", "sharegpt", "roles"],
)  # fmt: skip
@pytest.mark.parametrize("as_list", [False, True], ids=["lines", "list"])
def test_first_user_message_of_each_shape(tmp_path: Path, record: dict, as_list: bool) -> None:
    path = tmp_path / "prompts"
    path.write_text(json.dumps([record, record]) if as_list else f"{json.dumps(record)}\n" * 2)
    assert read_messages(path, "w") == [("hello", "writing")] * 2


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), ("{", "neither JSON"), ('{"text": "a"}', "no record")]
)
def test_absent_or_foreign_file_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SweepError, match=message) as caught:
        read_messages(path, "mine")
    assert str(caught.value).startswith("workload mine: ") and "\n" not in str(caught.value)


def test_chat_prompts_carry_the_template_and_mix_their_categories(tokenizer) -> None:
    prompts = load(Workload(name="chat", prompts="chat"), tokenizer, seed=1, most=100)
    assert Counter(prompt.category for prompt in prompts) == dict.fromkeys({p.category for p in prompts}, 5)
    assert len({prompt.category for prompt in prompts[:8]}) > 2
    text = tokenizer.decode(prompts[0].input_ids)
    assert text.startswith("user: ") and text.endswith("\nassistant: ")
    again = load(Workload(name="chat", prompts="chat"), tokenizer, seed=1, most=100)
    other = load(Workload(name="chat", prompts="chat"), tokenizer, seed=2, most=100)
    assert prompts == again and prompts != other and set(prompts) == set(other)


def test_random_prompts_have_their_length_and_no_special_token(tokenizer) -> None:
    prompts = load(Workload(name="r", prompts="random", input_tokens=300), tokenizer, seed=1, most=5)
    assert [len(prompt.input_ids) for prompt in prompts] == [300] * 5
    assert not {token for prompt in prompts for token in prompt.input_ids} & set(tokenizer.all_special_ids)
    assert not any(repeats_itself(prompt.input_ids) for prompt in prompts)


def test_r40_short_text_repeated_to_a_length_is_found() -> None:
    corpus = list(range(20))
    assert repeats_itself((corpus * 11)[:200])
    assert not repeats_itself([*(corpus * 11)[:199], 77])
    assert not repeats_itself((corpus * 2)[:39])


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=24))
def test_repetition_agrees_with_its_definition(tokens: list[int]) -> None:
    periods = range(1, len(tokens) // 2 + 1)
    by_definition = any(all(tokens[i] == tokens[i - p] for i in range(p, len(tokens))) for p in periods)
    assert repeats_itself(tokens) == by_definition
