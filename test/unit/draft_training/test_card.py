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
    "options": {"initial_draft": "None",
                "soft": "0.5", "decay": "4.0", "optimizer": "adamw", "learning_rate": "0.001", "average": "0.999",
                "minutes": "1.5"},
}  # fmt: skip
CURVE = [{"learning_rate": "0.0005", "accept_length": "1.0"}] * 5 + [
    {"learning_rate": "0.00002", "accept_length": "3.42"}
] * 10
EVALUATION = {
    "new_tokens": 256, "device": "another device", "torch": "9.8", "dtype": "torch.bfloat16",
    "prompt_sets": {"chat": {"prompts": 40, "tokens": 5000, "chain": 2.5,
                             "tree": {"8": 2.71, "16": 2.92, "32": 3.13, "64": 3.24, "128": 3.35}}},
}  # fmt: skip


def test_the_card_holds_the_numbers_of_the_run():
    card = make_card(CONFIG, TRAINING, EVALUATION, CURVE, "Title", "Target")
    for found in ("14.9 million", "1,234 texts", "0.2 million", "75%", "| story | 75% |", "4,321 steps",
                  "90 s of a schedule of 90 s.",
                  "| chat | 40 | 5000 | 2.50 | 2.71 | 2.92 | 3.13 | 3.24 | 3.35 |", "3.11", "3.10", "15.87 MB", "0.57%",
                  "bfloat16", "a device", "another device"):  # fmt: skip
        assert found in card
    assert "{" not in card


def test_the_card_says_which_goals_were_reached():
    card = make_card(CONFIG, TRAINING, EVALUATION, CURVE, "Title", "Target")
    for row in ("| answer tokens to train on | 20,000,000 | 200,000 |", "| chat: chain | 3.00 | 2.50 |",
                "| chat: tree of 32 over chain | 1.25 | 1.25 |"):  # fmt: skip
        assert row in card
    assert "humaneval" not in card, "a set that was not evaluated has no row"
    assert "accepts 3.42 tokens" in card and "overfits" not in card
    higher = [{**row, "accept_length": "4.0"} for row in CURVE]
    assert "overfits" in make_card(CONFIG, TRAINING, EVALUATION, higher, "Title", "Target")


def test_the_card_of_a_run_that_ended_early_says_so():
    ended = {**TRAINING, "complete": False, "seconds": 85.0}
    card = make_card(CONFIG, ended, EVALUATION, CURVE, "Title", "Target")
    assert "85 s of a schedule of 90 s, where the learning rate was at 2.0% of its peak." in card


def test_a_run_that_ended_long_before_its_schedule_has_no_card():
    with pytest.raises(ValueError, match=r"60\.0 s of a schedule of 90 s"):
        make_card(CONFIG, {**TRAINING, "complete": False, "seconds": 60.0}, EVALUATION, CURVE, "Title", "Target")


def test_the_card_of_a_run_that_began_with_a_draft_says_what_that_had_learned():
    began = {**TRAINING, "options": {**TRAINING["options"], "initial_draft": "draft"}}
    card = make_card(CONFIG, began, EVALUATION, CURVE, "Title", "Target", {**TRAINING, "steps": 777})
    assert "It began with the weights of a run before: 777 steps, 90 s, on 1,234 texts with 0.2\nmillion" in card
    for training, before in ((began, None), (TRAINING, TRAINING)):
        with pytest.raises(ValueError, match="--before"):
            make_card(CONFIG, training, EVALUATION, CURVE, "Title", "Target", before)
