"""Texts: loops cut short, duplicates dropped, sides of the split disjoint, shards whole."""

import dataclasses

import numpy as np
import pytest

from benchmark.draft_training.texts import Text, cut_loop, read_shards, split_texts, write_shard


def text(index: int, prompt: list[int], answer: list[int], greedy: bool = True) -> Text:
    return Text(index, 0, greedy, len(prompt), np.array(prompt + answer, dtype=np.int32))


def random_texts(count: int, seed: int) -> list[Text]:
    rng = np.random.default_rng(seed)
    return [
        text(index, rng.integers(50, size=rng.integers(1, 4)).tolist(), rng.integers(2, size=length).tolist())
        for index, length in enumerate(rng.integers(3, 9, size=count))
    ]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ([1, 2, 3, 3, 3, 3, 3, 3], [1, 2, 3, 3, 3]),
        ([9, 1, 2, 1, 2, 1, 2, 1, 2, 1], [9, 1, 2, 1, 2, 1, 2]),
        ([1, 1, 1], [1, 1, 1]),  # three times is no loop
        ([5, 5, 5, 5, 6], [5, 5, 5, 5, 6]),  # it ended
        ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_loops_up_to_the_end_keep_three_repetitions(answer, kept):
    assert cut_loop(np.array(answer)).tolist() == kept


def test_a_loop_of_the_longest_period_is_cut():
    piece = np.arange(96)
    assert len(cut_loop(np.concatenate([[500, 501], np.tile(piece, 5)]))) == 2 + 3 * 96


def test_no_prompt_and_no_beginning_of_an_answer_is_on_both_sides():
    training, held_out = split_texts(iter(random_texts(3000, seed=1)), held_out_share=0.3)
    assert len(training) > 100 and len(held_out) > 10
    for part in (lambda t: tuple(t.tokens[: t.prompt_length]), lambda t: tuple(t.tokens[t.prompt_length :][:32])):
        assert not {part(t) for t in training} & {part(t) for t in held_out}


def test_a_prompt_stays_once_and_a_beginning_three_times():
    texts = [text(0, [1], [7] * 40), text(1, [1], [8] * 40), *(text(n, [n], [7] * 40) for n in range(2, 9))]
    training, held_out = split_texts(iter(texts), held_out_share=0.0)
    assert [t.index for t in training] == [0, 2, 3]
    assert held_out == []


def test_more_texts_move_no_prompt_to_the_other_side():
    texts = random_texts(400, seed=2)
    few = split_texts(iter(texts[:200]), held_out_share=0.3)
    many = split_texts(iter(texts), held_out_share=0.3)
    assert {t.index for t in few[0]} <= {t.index for t in many[0]}
    assert not {t.index for t in few[1]} & {t.index for t in many[0]}


def test_tokens_of_a_large_vocabulary_come_back(tmp_path):
    write_shard(tmp_path / "engine0-00000.npz", [text(0, [1, 70_000], [65_535, 151_935])])
    (found,) = read_shards(tmp_path)
    assert found.tokens.tolist() == [1, 70_000, 65_535, 151_935] and found.tokens.dtype == np.int32


def test_shards_give_back_what_was_written(tmp_path):
    texts = [dataclasses.replace(t, kind=t.index % 3, greedy=t.index % 2 == 0) for t in random_texts(20, seed=3)]
    write_shard(tmp_path / "engine0-00000.npz", texts[:12])
    write_shard(tmp_path / "engine0-00001.npz", texts[12:])
    (tmp_path / ".engine0-00002.npz.partial").write_bytes(b"killed while writing")
    found = list(read_shards(tmp_path))
    assert [dataclasses.replace(t, tokens=t.tokens.tolist()) for t in found] == [
        dataclasses.replace(t, tokens=t.tokens.tolist()) for t in texts
    ]
