"""Figures that others have reported, with their source; data beside ours, never mixed into it."""

from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from benchmark.command import BenchmarkError

FILE = Path(__file__).parents[1] / "published.yaml"


@dataclass(frozen=True)
class Figure:
    """One reported figure; None where the source does not say."""

    model: str
    system: str
    configuration: str
    source: str
    concurrency: int | None = None
    output_tok_s: float | None = None
    accept_length: str | None = None
    speedup: float | None = None
    note: str | None = None


def published(model: str | None = None, path: Path = FILE) -> list[Figure]:
    """Returns the figures for ``model``, or all. Raises BenchmarkError for an unknown model or a wrong key."""
    entries = yaml.safe_load(path.read_text())
    known = {field.name for field in fields(Figure)}
    for entry in entries:
        if unknown := set(entry) - known:
            raise BenchmarkError(f"{path}: there is no key {', '.join(sorted(unknown))}")
    figures = [Figure(**entry) for entry in entries]
    models = list(dict.fromkeys(figure.model for figure in figures))
    if model is not None and model not in models:
        raise BenchmarkError(f"{path} has no figures for {model}; there are {', '.join(models)}")
    return [figure for figure in figures if model in (None, figure.model)]
