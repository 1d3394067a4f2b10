"""``python -m benchmark.draft_training.card``: a draft's model card, every number from the JSON files of its run."""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

from .evaluate import table

# What the recipe aims at with the bundled target; the card says which of it was reached.
GOAL_ANSWER_TOKENS = 20_000_000
GOAL_CHAIN = {"chat": 3.0, "humaneval": 3.5}
GOAL_TREE_32_OVER_CHAIN = 1.25
SMALLEST_SHARE_OF_SCHEDULE = 0.9
LAST_ROWS = 10

CARD = """\
# {title}

A DFLASH draft of {layers} layers and {parameters:.1f} million parameters for {target}, block size {block_size}.
It proposes {depths} tokens in one forward; it has no embedding and no output head, those of the target are used. A
draft fits exactly one target: with another one it is accepted rarely, and the output stays the target's.

## Data

{texts:,} texts with {tokens:.1f} million answer tokens, all written by the target itself, from prompts that it
completed from openers at temperature 1; {greedy:.0%} of the answers are greedy, the others sampled at temperature 0.7.
Endless repetitions were cut short in nine of ten texts, repeated prompts dropped. No text of other origin was used; the
prompts of the table below are for evaluation only.

| opener | share of answer tokens |
| --- | --- |
{kinds}

## Training

{steps:,} steps of {tokens_per_batch:,} text tokens, a quarter as many blocks each, on one {device} (torch {torch}):
{seconds:.0f} s of a schedule of {schedule:.0f} s{cut_short}.{before}
The label is {soft:.0%} the target's distribution and the text's token for the rest; a position weighs
exp(-(d - 1) / {decay:g}) at depth d. {optimizer}, peak learning rate {learning_rate:g}, weights averaged with decay
{average}. `benchmark/draft_training/README.md` has the commands.

## Accept length

Tokens per round, bonus token included. The target continues each prompt greedily, up to {new_tokens} tokens, and the
rounds are replayed on its text ({evaluation_device}, {dtype}, torch {evaluation_torch}). Trees are best-first over the
eight best tokens of each depth.

{table}
At random positions of held-out greedy texts the chain's is {held_out[float32]:.2f} with the trained weights and
{held_out[int8]:.2f} as packed to int8 ({megabytes:.2f} MB, relative error of the matrices {relative_error:.2%}).

## Goals and what was reached

| | goal | reached |
| --- | --- | --- |
{goals}

At the end of the run the chain accepts {training_accept_length:.2f} tokens at random positions of the training texts
(sampled answers among them) and {held_out[float32]:.2f} of held-out greedy ones.{overfit}

## Limits

- The target is small: its answers are often wrong or repeat themselves. Repetitions are easy to propose, so a high
  accept length is partly the target's loops.
- English, Python and short answers make up the data. Other languages, long conversations and unusual system prompts
  were not measured.
- The table is greedy; sampled requests were not measured.
"""
BEFORE = """
It began with the weights of a run before: {steps:,} steps, {seconds:.0f} s, on {texts:,} texts with {tokens:.1f}
million answer tokens."""
OVERFIT = "\nThe draft overfits: it lacks texts before it lacks steps or weights."


def make_card(
    config: dict[str, Any],
    training: dict[str, Any],
    evaluation: dict[str, Any],
    curve: list[dict[str, str]],
    title: str,
    target: str,
    before: dict[str, Any] | None = None,
) -> str:
    """Returns the card in markdown, of a draft's config.json, a run's training.json, evaluation.json and curve rows.

    ``before`` is the training.json of the run whose draft this one began with (``--initial-draft``).
    Raises ValueError if less than nine tenths of the run's schedule were done, since the learning rate was still high
    then, and if ``before`` is missing or was given for a run that began without a draft.
    """
    if (training["options"]["initial_draft"] == "None") != (before is None):
        raise ValueError(
            "a run with --initial-draft, and no other, needs the training.json of the run before (--before)"
        )
    schedule = 60 * float(training["options"]["minutes"])
    share = training["seconds"] / schedule
    if not training["complete"] and share < SMALLEST_SHARE_OF_SCHEDULE:
        raise ValueError(
            f"the run ended after {training['seconds']} s of a schedule of {schedule:.0f} s, the card needs "
            f"{SMALLEST_SHARE_OF_SCHEDULE:.0%} of it: start train again, it goes on"
        )
    rate = float(curve[-1]["learning_rate"]) / float(training["options"]["learning_rate"])
    on_training = [float(row["accept_length"]) for row in curve[-LAST_ROWS:]]
    training_accept_length = sum(on_training) / len(on_training)
    held_out = training["held_out_accept_length"]["float32"]
    data, options = training["data"]["training"], training["options"]
    kinds = data["answer_tokens_by_kind"]
    return CARD.format(
        title=title,
        target=target,
        layers=config["num_hidden_layers"],
        parameters=training["parameters"] / 1e6,
        block_size=config["block_size"],
        depths=config["block_size"] - 1,
        texts=data["texts"],
        tokens=data["answer_tokens"] / 1e6,
        greedy=data["greedy_share_of_texts"],
        kinds="\n".join(f"| {kind} | {tokens / data['answer_tokens']:.0%} |" for kind, tokens in kinds.items()),
        steps=training["steps"],
        tokens_per_batch=training["tokens_per_batch"],
        seconds=training["seconds"],
        schedule=schedule,
        cut_short="" if training["complete"] else f", where the learning rate was at {rate:.1%} of its peak",
        before=_before(before) if before else "",
        device=training["device"],
        torch=training["torch"],
        soft=float(options["soft"]),
        decay=float(options["decay"]),
        optimizer={"adamw": "AdamW", "muon": "Muon for matrices, AdamW for the rest"}[options["optimizer"]],
        learning_rate=float(options["learning_rate"]),
        average=options["average"],
        new_tokens=evaluation["new_tokens"],
        evaluation_device=evaluation["device"],
        evaluation_torch=evaluation["torch"],
        dtype=evaluation["dtype"].removeprefix("torch."),
        table=table(evaluation),
        held_out=training["held_out_accept_length"],
        megabytes=training["packed_bytes"] / 1e6,
        relative_error=training["packed_relative_error"],
        goals="\n".join(_goals(data["answer_tokens"], evaluation["prompt_sets"])),
        training_accept_length=training_accept_length,
        overfit=OVERFIT if training_accept_length > 1.15 * held_out else "",
    )


def _before(training: dict[str, Any]) -> str:
    data = training["data"]["training"]
    tokens = data["answer_tokens"] / 1e6
    return BEFORE.format(steps=training["steps"], seconds=training["seconds"], texts=data["texts"], tokens=tokens)


def _goals(answer_tokens: int, prompt_sets: dict[str, Any]) -> list[str]:
    rows = [f"| answer tokens to train on | {GOAL_ANSWER_TOKENS:,} | {answer_tokens:,} |"]
    for name, goal in GOAL_CHAIN.items():
        if name in prompt_sets:
            chain, tree = prompt_sets[name]["chain"], prompt_sets[name]["tree"]["32"]
            rows.append(f"| {name}: chain | {goal:.2f} | {chain:.2f} |")
            rows.append(f"| {name}: tree of 32 over chain | {GOAL_TREE_32_OVER_CHAIN:.2f} | {tree / chain:.2f} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.draft_training.card", description=__doc__)
    parser.add_argument("config", type=Path, help="the draft's config.json")
    parser.add_argument("training", type=Path, help="training.json of the run")
    parser.add_argument("evaluation", type=Path, help="evaluation.json of the draft")
    parser.add_argument("curve", type=Path, help="curve.csv of the run")
    parser.add_argument("--before", type=Path, help="training.json of the run that made its --initial-draft")
    parser.add_argument("--out", type=Path, required=True, help="the card to write")
    parser.add_argument("--title", default="A DFLASH draft for SmolLM2-135M-Instruct")
    parser.add_argument("--target", default="SmolLM2-135M-Instruct")
    options = parser.parse_args()
    files = [json.loads(path.read_text()) for path in (options.config, options.training, options.evaluation)]
    with options.curve.open(newline="") as file:
        curve = list(csv.DictReader(file))
    before = json.loads(options.before.read_text()) if options.before else None
    options.out.write_text(make_card(*files, curve, options.title, options.target, before))
    return 0


if __name__ == "__main__":
    sys.exit(main())
