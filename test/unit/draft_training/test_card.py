"""The model card: every number from the files of a run, and none of an unfinished one."""

import pytest

from benchmark.draft_training.card import make_card

CONFIG = {"num_hidden_layers": 3, "block_size": 8}
TRAINING = {
    "complete": True,
    "data": {
        "training": {"texts": 1234, "answer_tokens": 200000, "answer_tokens_by_kind": {"story": 150000, "code": 50000},
                     "greedy_share_of_texts": 0.75}
    },
    "steps": 4321, "seconds": 90.0, "tokens_per_batch": 2048, "parameters": 14_930_000, "device": "a device",
    "torch": "9.9", "held_out_accept_length": {"float32": 3.111, "int8": 3.099}, "packed_bytes": 15_870_000,
    "packed_relative_error": 0.0057,
    "options": {"soft": "0.5", "decay": "4.0", "optimizer": "adamw", "learning_rate": "0.001", "average": "0.999"},
}  # fmt: skip
EVALUATION = {
    "new_tokens": 256, "device": "another device", "torch": "9.8", "dtype": "torch.bfloat16",
    "prompt_sets": {"chat": {"prompts": 40, "tokens": 5000, "chain": 2.5,
                             "tree": {"8": 2.71, "16": 2.92, "32": 3.13, "64": 3.24, "128": 3.35}}},
}  # fmt: skip


def test_the_card_holds_the_numbers_of_the_run():
    card = make_card(CONFIG, TRAINING, EVALUATION, "Title", "Target")
    for found in ("14.9 million", "1,234 texts", "0.2 million", "75%", "| story | 75% |", "4,321 steps", "1.5 minutes",
                  "| chat | 40 | 5000 | 2.50 | 2.71 | 2.92 | 3.13 | 3.24 | 3.35 |", "3.11", "3.10", "15.87 MB", "0.57%",
                  "bfloat16", "a device", "another device"):  # fmt: skip
        assert found in card
    assert "{" not in card


def test_an_unfinished_run_has_no_card():
    with pytest.raises(ValueError, match=r"90\.0 s"):
        make_card(CONFIG, {**TRAINING, "complete": False}, EVALUATION, "Title", "Target")
