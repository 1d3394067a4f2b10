"""``python -m benchmark.draft_training.generate``: the target writes its own training texts.

Per text the target completes an opener into a prompt at temperature 1, then answers it: three of four answers greedily,
the others at temperature 0.7. Engines of the fork run side by side on one device, since the host's work per step limits
one engine with many small requests. Every engine writes shards as texts come; a run that ended goes on where it was.

An engine decodes its most requests all the time: more requests are under way than it runs, and a new one starts as soon
as one ends. But a prefill costs a whole step, however few requests it has, and with a thousand requests some end in
every step; so prefills wait until a sixteenth of the places is free, and one step in many is a prefill instead of one
in two.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from .prompts import DOCSTRING_QUOTES, KINDS, chat_frames, make_opener
from .texts import Text, cut_loop, read_shards, write_shard

SAMPLED_SHARE = 0.25
SAMPLED_TEMPERATURE = 0.7
# As good as greedy: a token that is 0.1 nats behind the best is drawn once in e^100. A temperature of 0 would be a
# filter to the best token, and with one filter in a batch the sampler filters the vocabulary of all its requests.
GREEDY_TEMPERATURE = 0.001
UNCUT_SHARE = 0.1
SHORTEST_ANSWER = 8
# Shares of the running requests that get a CUDA graph: decoding is nearly always at the full size.
GRAPH_SHARES = (1 / 64, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 15 / 16, 1)
PREFILL_SHARE = 1 / 16
# A client of whole texts needs no partial outputs, which upstream sends every 50 tokens.
ENGINE_ENVIRONMENT = {"SGLANG_FORCE_STREAM_INTERVAL": "1000000", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    started = time.monotonic()
    options = _parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker is None and options.engines > 1:
        return _run_workers()
    from transformers import AutoTokenizer

    deadline = started + 60 * options.minutes - options.reserve_seconds
    tokenizer = AutoTokenizer.from_pretrained(options.target, local_files_only=True)
    Writer(options, tokenizer, deadline).run()
    return 0


def _run_workers() -> int:
    """One process per engine, with this process's own flags."""
    options = _parser().parse_args()
    command = [sys.executable, "-m", "benchmark.draft_training.generate", *sys.argv[1:]]
    threads = max(1, (os.cpu_count() or 1) // (2 * options.engines))  # an engine is two busy processes
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    workers = [
        subprocess.Popen([*command, "--worker", str(worker)], env=environment) for worker in range(options.engines)
    ]
    try:
        statuses = [worker.wait() for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
    return max(abs(status) for status in statuses)


class Writer:
    """One engine that writes every n-th text, n being the number of engines."""

    def __init__(self, options: argparse.Namespace, tokenizer: Any, deadline: float) -> None:
        self.options = options
        self.deadline = deadline
        self.worker = options.worker or 0
        self.tokenizer = tokenizer
        self.end_of_turn = self.tokenizer.eos_token
        self.frames = chat_frames(
            lambda messages: self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )
        self.stop_tokens = stop_tokens(tokenizer)
        written = [(text.index, text.answer_length) for text in read_shards(options.out)]
        self.written = {index for index, _ in written}
        mine = [length for index, length in written if index % options.engines == self.worker]
        self.tokens = sum(mine)
        self.goal = options.tokens // options.engines
        self.next_index = self.worker
        # past the last one, not the number of them: shards of an earlier run may have been brought back in part
        numbers = [int(path.stem.partition("-")[2]) for path in options.out.glob(f"engine{self.worker}-*.npz")]
        self.next_shard = max(numbers, default=-1) + 1
        self.pending: list[Text] = []
        self.counts: Counter[str] = Counter()  # tokens decoded for prompts and answers and kept; texts by what became

    def run(self) -> None:
        """Writes texts until the goal or the deadline; what is unfinished then is dropped. Prints what it decoded."""
        if self.tokens >= self.goal:
            return
        started = time.monotonic()
        engine = _start_engine(self.options)
        ready = time.monotonic()
        try:
            engine.loop.run_until_complete(self.write_texts(engine))
        finally:
            self._flush()
            engine.shutdown()
        seconds = {"start": round(ready - started, 1), "write": round(time.monotonic() - ready, 1)}
        print(json.dumps({"engine": self.worker, "seconds": seconds, **self.counts}), flush=True)

    async def write_texts(self, engine: Any) -> None:
        with tqdm(
            total=self.goal, initial=self.tokens, unit="tok", unit_scale=True, desc=f"engine {self.worker}",
            position=self.worker, mininterval=self.options.progress_seconds,
        ) as progress:  # fmt: skip
            under_way = self.options.running + 2 * _free_places(self.options.running)
            tasks = {asyncio.ensure_future(self._loop(engine, progress)) for _ in range(under_way)}
            _, unfinished = await asyncio.wait(tasks, timeout=max(0.0, self.deadline - time.monotonic()))
            for task in unfinished:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome

    async def _loop(self, engine: Any, progress: tqdm) -> None:
        while self.tokens < self.goal and time.monotonic() < self.deadline:
            text = await self._write_text(engine, self._take_index())
            if text is None:
                continue
            self.pending.append(text)
            self.tokens += text.answer_length
            progress.update(text.answer_length)
            if len(self.pending) >= self.options.texts_per_shard:
                self._flush()

    def _take_index(self) -> int:
        while self.next_index in self.written:
            self.next_index += self.options.engines
        index = self.next_index
        self.next_index += self.options.engines
        return index

    async def _write_text(self, engine: Any, index: int) -> Text | None:
        options = self.options
        opener = make_opener(index, options.seed, self.frames, self.end_of_turn)
        continuation = ""
        if opener.stop is not None:
            ids = self._encode(opener.lead + opener.body)
            sampling = {"temperature": 1.0, "max_new_tokens": options.prompt_tokens}
            if stops := self.stop_tokens.get(opener.stop):
                sampling["stop_token_ids"] = stops
            added = await _generate(engine, ids, sampling)
            self.counts["prompt_tokens"] += len(added)
            continuation = self.tokenizer.decode(added)
        text = opener.prompt(continuation)
        prompt = self._encode(text) if text is not None else []
        if not 0 < len(prompt) <= options.longest_prompt:
            self.counts["texts_without_prompt"] += 1
            return None
        choice = random.Random(f"{options.seed}:{index}:answer")
        greedy = choice.random() >= SAMPLED_SHARE
        sampling = {
            "temperature": GREEDY_TEMPERATURE if greedy else SAMPLED_TEMPERATURE,
            "max_new_tokens": options.answer_tokens,
        }
        answer = np.array(await _generate(engine, prompt, sampling), dtype=np.int32)
        self.counts["answer_tokens"] += len(answer)
        if len(answer) == options.answer_tokens and choice.random() >= UNCUT_SHARE:
            answer = cut_loop(answer)
        if len(answer) < SHORTEST_ANSWER:
            self.counts["texts_too_short"] += 1
            return None
        self.counts["kept_tokens"] += len(answer)
        self.counts["texts_kept"] += 1
        tokens = np.concatenate([np.array(prompt, dtype=np.int32), answer])
        return Text(index, KINDS.index(opener.kind), greedy, len(prompt), tokens)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _flush(self) -> None:
        if self.pending:
            write_shard(self.options.out / f"engine{self.worker}-{self.next_shard:05d}.npz", self.pending)
            self.next_shard += 1
            self.pending = []


def stop_tokens(tokenizer: Any) -> dict[str, list[int]]:
    """Returns, for either kind of docstring quotes, the tokens that hold them: decoding can end there.

    Stop strings would need a tokenizer in the engine, which then turns every token into text. Quotes that fall into two
    tokens are found only when the continuation is cut.
    """
    pieces = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return {quotes: [token for token, piece in enumerate(pieces) if quotes in piece] for quotes in DOCSTRING_QUOTES}


async def _generate(engine: Any, ids: list[int], sampling: dict[str, Any]) -> list[int]:
    answer = await engine.async_generate(input_ids=ids, sampling_params=sampling)
    return answer["output_ids"]


def _free_places(running: int) -> int:
    """How many running requests must have ended before a prefill takes their places."""
    return max(1, round(running * PREFILL_SHARE))


def _start_engine(options: argparse.Namespace) -> Any:
    os.environ.update(ENGINE_ENVIRONMENT)
    import sglang

    flags: dict[str, Any] = {
        "model_path": str(options.target),
        "skip_tokenizer_init": True,
        "max_running_requests": options.running,
        "min_free_slots_delay": _free_places(options.running),
        "random_seed": options.seed + (options.worker or 0),
        "disable_radix_cache": True,
        "log_level": "warning",
    }
    if options.device == "cuda":
        # the pool is sized by tokens: a share of free memory would depend on which engine started first
        flags |= {
            "attention_backend": "triton", "sampling_backend": "pytorch", "cuda_graph_backend_prefill": "disabled",
            "cuda_graph_bs_decode": sorted({max(1, round(options.running * share)) for share in GRAPH_SHARES}),
            "max_total_tokens": options.running * (options.longest_prompt + options.answer_tokens + 64),
            "mem_fraction_static": 0.8, "dtype": "bfloat16",
        }  # fmt: skip
    return sglang.Engine(**flags)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmark.draft_training.generate", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of the shards")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", type=int, default=24_000_000, help="answer tokens to write in all (%(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="end after this long, start-up included")
    parser.add_argument("--reserve-seconds", type=float, default=8.0, help="of it, kept for the last shard and the end")
    parser.add_argument("--engines", type=int, default=4, help="engines side by side on the device (%(default)s)")
    parser.add_argument("--running", type=int, default=1024, help="running requests of one engine (%(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="most tokens that the target adds to an opener")
    parser.add_argument("--longest-prompt", type=int, default=256, help="longer prompts are dropped (%(default)s)")
    parser.add_argument("--answer-tokens", type=int, default=384, help="most tokens of an answer (%(default)s)")
    parser.add_argument("--texts-per-shard", type=int, default=1024)
    parser.add_argument("--progress-seconds", type=float, default=1.0, help="between two updates of the progress bar")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
