"""Accept length of the bundled pair, chain and tree of 32 nodes: as stored, and the offline evaluator's."""

import json
from typing import Any

import pytest
import torch

from benchmark.draft_training import checkpoints, evaluate
from benchmark.draft_training.prompt_sets import CHAT_PROMPTS
from benchmark.draft_training.target import Target
from harness.server import launch

NEW_TOKENS = 32
# The 1st, 11th, 21st and 31st chat prompt: writing, reasoning, coding, stem.
PROMPTS = [json.loads(line)["prompt"] for line in CHAT_PROMPTS.read_text().splitlines()][::10]
TREE = {"speculative_dflash_tree_budget": 32}

# Tokens after the first one over verify steps, of the packed draft in this repository; greedy, float32, on CPU.
BASELINE = {"chain": 1.9649, "tree": 2.5455}
TOLERANCE = 0.03


@pytest.fixture(scope="module")
def prompts(bundled_pair) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bundled_pair.target, local_files_only=True)
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    return [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in chats]


@pytest.fixture(scope="module", params=["chain", "tree"])
def served(request, bundled_pair, prompts) -> tuple[str, list[dict[str, Any]]]:
    """The kind of draft and the server's answer to every prompt."""
    flags = TREE if request.param == "tree" else {}
    with launch(*_folders(bundled_pair), dtype="float32", max_running_requests=len(prompts), **flags) as server:
        answers = server.generate_concurrently([{"input_ids": ids, "max_new_tokens": NEW_TOKENS} for ids in prompts])
    return request.param, answers


@pytest.fixture(scope="module")
def draft_and_target(bundled_pair):
    draft, _ = checkpoints.read_draft(bundled_pair.draft)
    return draft, Target(bundled_pair.target, draft.config.target_layers, torch.device("cpu"), torch.float32)


def test_accept_length_is_the_stored_one(served):
    kind, answers = served
    _compare(f"served {kind} against the stored baseline", _accept_length(answers), BASELINE[kind])


def test_accept_length_is_that_of_the_offline_evaluator(served, prompts, draft_and_target):
    kind, answers = served
    offline = evaluate.accept_lengths(*draft_and_target, prompts, [answer["output_ids"] for answer in answers])
    expected = offline["chain"] if kind == "chain" else offline["tree"]["32"]
    _compare(f"served {kind} against the offline evaluator", _accept_length(answers), expected)


def _accept_length(answers: list[dict[str, Any]]) -> float:
    """The first token comes with the prompt, so it is no verify step's."""
    emitted = sum(answer["meta_info"]["completion_tokens"] - 1 for answer in answers)
    return emitted / sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)


def _compare(what: str, actual: float, expected: float) -> None:
    assert actual == pytest.approx(expected, rel=TOLERANCE), (
        f"accept length, {what}: expected {expected:.4f} within {TOLERANCE:.0%}, got {actual:.4f}. After another draft "
        "or a wanted change of rounds, store the new value in BASELINE."
    )


def _folders(bundled_pair) -> tuple[Any, Any]:
    return bundled_pair.target, bundled_pair.draft
