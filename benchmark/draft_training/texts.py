"""The target's texts on disk and in memory: shards, loops cut short, duplicates dropped, texts held out by prompt."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .prompts import KINDS

LONGEST_PERIOD = 96
ENDLESS_REPEATS = 4
KEPT_REPEATS = 3
PREFIX_TOKENS = 32
TEXTS_PER_PREFIX = 3
HELD_OUT_SHARE = 0.02


@dataclass(frozen=True)
class Text:
    """A prompt and the target's answer, as one row of token ids.

    ``index`` is the number of its opener, ``kind`` the number of the opener's kind, ``greedy`` whether the answer was
    decoded greedily. ``tokens`` [prompt + answer] is an integer array.
    """

    index: int
    kind: int
    greedy: bool
    prompt_length: int
    tokens: np.ndarray

    @property
    def answer_length(self) -> int:
        return len(self.tokens) - self.prompt_length


def write_shard(path: Path, texts: list[Text]) -> None:
    """Writes ``texts`` as one compressed .npz file that is there whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    tokens = np.concatenate([text.tokens for text in texts])
    with partial.open("wb") as file:
        np.savez_compressed(
            file,
            tokens=tokens.astype(np.min_scalar_type(tokens.max())),
            lengths=np.array([len(text.tokens) for text in texts], dtype=np.int32),
            prompt_lengths=np.array([text.prompt_length for text in texts], dtype=np.int32),
            indexes=np.array([text.index for text in texts], dtype=np.int64),
            kinds=np.array([text.kind for text in texts], dtype=np.uint8),
            greedy=np.array([text.greedy for text in texts], dtype=bool),
        )
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_shards(folder: Path) -> Iterator[Text]:
    """Yields the texts of every shard in ``folder``, in the order of the shards' names."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            shard = {name: file[name] for name in file.files}
        shard["tokens"] = shard["tokens"].astype(np.int32)  # stored as narrow as they fit
        ends = np.cumsum(shard["lengths"])
        for row, end in enumerate(ends):
            yield Text(
                int(shard["indexes"][row]),
                int(shard["kinds"][row]),
                bool(shard["greedy"][row]),
                int(shard["prompt_lengths"][row]),
                shard["tokens"][end - shard["lengths"][row] : end],
            )


def cut_loop(answer: np.ndarray) -> np.ndarray:
    """Returns ``answer`` without the end of a loop: three repetitions stay of a piece repeated up to the very end.

    A loop is a piece of at most 96 tokens that stands there at least four times in a row. A small target decoded
    greedily falls into loops often; whole ones would teach little else, none at all would hide what is served.
    """
    length = len(answer)
    for period in range(1, min(LONGEST_PERIOD, length // ENDLESS_REPEATS) + 1):
        differs = np.flatnonzero(answer[period:] != answer[:-period])
        repeated = length - period - (differs[-1] + 1 if len(differs) else 0)  # equal tokens at the end
        if repeated >= (ENDLESS_REPEATS - 1) * period:
            return answer[: length - repeated - period + KEPT_REPEATS * period]
    return answer


def split_texts(texts: Iterator[Text], held_out_share: float = HELD_OUT_SHARE) -> tuple[list[Text], list[Text]]:
    """Returns the texts to train on and those held out; no prompt and no beginning of an answer is in both.

    Of texts with the same prompt the first stays. At most three texts share the first 32 tokens of their answers.
    Whether a text is held out depends on its prompt alone, so more texts later move none from one side to the other.
    """
    prompts: set[bytes] = set()
    prefixes: Counter[bytes] = Counter()
    sides: dict[bool, list[Text]] = {True: [], False: []}
    for text in texts:
        prompt = _digest(text.tokens[: text.prompt_length])
        prefix = _prefix(text)
        if prompt in prompts or prefixes[prefix] == TEXTS_PER_PREFIX:
            continue
        prompts.add(prompt)
        prefixes[prefix] += 1
        sides[int.from_bytes(prompt[:4], "big") < held_out_share * 2**32].append(text)
    training = sides[False]
    known = {_prefix(text) for text in training}
    return training, [text for text in sides[True] if _prefix(text) not in known]


def summarize(texts: list[Text]) -> dict[str, Any]:
    """Returns counts of texts and of answer tokens, in all and by kind of opener, and the share of greedy answers."""
    kinds: Counter[str] = Counter()
    for text in texts:
        kinds[KINDS[text.kind]] += text.answer_length
    return {
        "texts": len(texts),
        "answer_tokens": sum(kinds.values()),
        "answer_tokens_by_kind": dict(kinds.most_common()),
        "greedy_share_of_texts": round(sum(text.greedy for text in texts) / max(1, len(texts)), 4),
    }


def _prefix(text: Text) -> bytes:
    return _digest(text.tokens[text.prompt_length : text.prompt_length + PREFIX_TOKENS])


def _digest(tokens: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(tokens, dtype=np.int32).tobytes(), digest_size=16).digest()
