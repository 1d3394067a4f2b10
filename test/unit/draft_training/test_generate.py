"""The writing of texts: the engine never runs below its most requests, and what was decoded is counted."""

import argparse
import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from benchmark.draft_training.generate import Writer, stop_tokens
from benchmark.draft_training.texts import read_shards, split_texts
from harness.tiny_tokenizer import EOS_ID, build_tiny_tokenizer

RUNNING = 64
LATENCY = 2  # steps that the engine goes on while an answer is on its way to the client and the next request back
TOKENIZER = build_tiny_tokenizer()


class SteppingEngine:
    """Decodes up to ``RUNNING`` requests at a time, one token a step, and admits waiting ones when places are free."""

    def __init__(self, free_places: int) -> None:
        self.free_places = free_places
        self.waiting: list[list[Any]] = []  # [tokens left, tokens so far, future]
        self.delivered: list[list[Any]] = []  # [steps left, tokens, future]
        self.running: list[list[Any]] = []
        self.sizes: list[int] = []  # of every decoding step
        self.prefills = 0
        self.sampling: list[dict[str, Any]] = []
        self.random = random.Random(0)

    async def async_generate(self, input_ids: list[int], sampling_params: dict[str, Any]) -> dict[str, Any]:
        self.sampling.append(sampling_params)
        future = asyncio.get_running_loop().create_future()
        length = self.random.randint(30, min(63, sampling_params["max_new_tokens"] - 1))
        self.waiting.append([length, [], future])
        return {"output_ids": await future}

    async def steps(self) -> None:
        while True:
            await asyncio.sleep(0)
            if self.waiting and RUNNING - len(self.running) >= self.free_places:
                admitted = self.waiting[: RUNNING - len(self.running)]
                self.waiting = self.waiting[len(admitted) :]
                self.running += admitted
                self.prefills += 1
            if self.running:
                self.sizes.append(len(self.running))
            for request in self.running:
                request[0] -= 1
                request[1].append(EOS_ID if request[0] == 0 else self.random.randint(5, 100))
            self.delivered += [[LATENCY, tokens, future] for left, tokens, future in self.running if left == 0]
            for answer in self.delivered:
                answer[0] -= 1
                if answer[0] == 0 and not answer[2].done():
                    answer[2].set_result(answer[1])
            self.delivered = [answer for answer in self.delivered if answer[0] > 0]
            self.running = [request for request in self.running if request[0]]


def write(engine: SteppingEngine, out: Path, tokens: int) -> Writer:
    options = argparse.Namespace(
        out=out, engines=1, worker=None, tokens=tokens, running=RUNNING, seed=0, prompt_tokens=64, longest_prompt=600,
        answer_tokens=64, texts_per_shard=32, progress_seconds=60.0,
    )  # fmt: skip
    writer = Writer(options, TOKENIZER, time.monotonic() + 60)

    async def run() -> None:
        stepping = asyncio.ensure_future(engine.steps())
        await writer.write_texts(engine)
        stepping.cancel()

    asyncio.run(run())
    writer._flush()
    return writer


@pytest.mark.parametrize("free_places", [1, 4])
def test_every_step_until_the_goal_decodes_as_many_requests_as_the_engine_holds(tmp_path, free_places):
    engine = SteppingEngine(free_places)
    write(engine, tmp_path, tokens=20000)
    until_goal = engine.sizes[: -3 * 64]  # the last texts, a prompt and an answer each, run out
    assert len(until_goal) > 100
    assert min(until_goal) > RUNNING - free_places, f"places stood empty: {sorted(until_goal)[:5]}"


def test_waiting_for_free_places_makes_prefills_few(tmp_path):
    counts = []
    for free_places in (1, 4):
        engine = SteppingEngine(free_places)
        (tmp_path / str(free_places)).mkdir()
        write(engine, tmp_path / str(free_places), tokens=20000)
        counts.append(engine.prefills)
    assert counts[1] < counts[0] / 2


def test_counts_say_what_became_of_decoded_tokens(tmp_path):
    writer = write(SteppingEngine(1), tmp_path, tokens=5000)
    texts = list(read_shards(tmp_path))
    assert writer.counts["texts_kept"] == len(texts) > 50
    assert writer.counts["kept_tokens"] == sum(text.answer_length for text in texts) >= 5000
    assert writer.counts["answer_tokens"] >= writer.counts["kept_tokens"]
    assert writer.counts["prompt_tokens"] > 0


def test_a_second_start_goes_on_with_other_texts(tmp_path):
    write(SteppingEngine(1), tmp_path, tokens=3000)
    first = {text.index for text in read_shards(tmp_path)}
    write(SteppingEngine(1), tmp_path, tokens=9000)
    indexes = [text.index for text in read_shards(tmp_path)]
    assert first < set(indexes) and len(indexes) == len(set(indexes))
    training, held_out = split_texts(read_shards(tmp_path), held_out_share=0.2)
    assert training and held_out


def test_shards_brought_back_in_part_are_not_overwritten(tmp_path):
    write(SteppingEngine(1), tmp_path, tokens=6000)
    shards = sorted(tmp_path.glob("*.npz"))
    assert len(shards) > 2
    shards[0].unlink()
    kept = {path: path.read_bytes() for path in shards[1:]}
    write(SteppingEngine(1), tmp_path, tokens=12000)
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(list(tmp_path.glob("*.npz"))) > len(shards)


def test_docstring_quotes_end_a_prompt_by_token():
    class Pieces:
        pieces = ("a", '"""', ' """\n', '""', "'''", "b")

        def __len__(self) -> int:
            return len(self.pieces)

        def batch_decode(self, rows: list[list[int]]) -> list[str]:
            return ["".join(self.pieces[token] for token in row) for row in rows]

    assert stop_tokens(Pieces()) == {'"""': [1, 2], "'''": [4]}
