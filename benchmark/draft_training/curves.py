"""``python -m benchmark.draft_training.curves``: plots from the files that train and evaluate wrote."""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first: there may be no display)


def draw_training(curve: Path, picture: Path) -> None:
    """Draws loss and accept length over the time of training, from ``curve.csv``."""
    with curve.open(newline="") as file:
        rows = list(csv.DictReader(file))
    minutes = [float(row["seconds"]) / 60 for row in rows]
    held_out = [(minute, float(row["held_out_accept_length"])) for minute, row in zip(minutes, rows, strict=True)
                if row["held_out_accept_length"]]  # fmt: skip
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 7), layout="constrained")
    above.plot(minutes, [float(row["loss"]) for row in rows], linewidth=0.8)
    above.set(ylabel="loss", yscale="log")
    below.plot(minutes, [float(row["accept_length"]) for row in rows], linewidth=0.8, label="training texts")
    below.plot(*zip(*held_out, strict=True), marker=".", label="held-out greedy texts, averaged weights")
    below.set(xlabel="minutes of training", ylabel="accept length at random anchors")
    below.legend()
    _save(figure, picture)


def draw_evaluation(results: dict[str, Any], picture: Path) -> None:
    """Draws accept length over the tree budget, one line per prompt set, from ``evaluation.json``."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for name, part in results["prompt_sets"].items():
        budgets = [int(budget) for budget in part["tree"]]
        (line,) = axes.plot(budgets, list(part["tree"].values()), marker="o", label=f"{name}, tree")
        axes.axhline(part["chain"], color=line.get_color(), linestyle="--", linewidth=0.8, label=f"{name}, chain")
    axes.set(xscale="log", xlabel="tree budget (draft nodes)", ylabel="accept length, bonus token included")
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.legend()
    _save(figure, picture)


def _save(figure: plt.Figure, picture: Path) -> None:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmark.draft_training.curves", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with curve.csv or evaluation.json")
    folder = parser.parse_args().folder
    if (folder / "curve.csv").is_file():
        draw_training(folder / "curve.csv", folder / "curve.png")
    if (folder / "evaluation.json").is_file():
        draw_evaluation(json.loads((folder / "evaluation.json").read_text()), folder / "evaluation.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
