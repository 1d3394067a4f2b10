"""Where speculation wins: tokens per second of each width and of the server's own choice, over plain decoding's."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmark.report.style import FIGURE, styles_for

from .table import at, text_of

import matplotlib.pyplot as plt  # isort: skip  (style chooses the backend)

Row = dict[str, Any]


class Speeds(NamedTuple):
    """What one forced accept length gives, at the batches where plain decoding was measured."""

    accept_length: float
    batches: list[int]
    over_plain: dict[int | None, dict[int, float]]
    """By width, None for the server's choice, and batch."""

    def auto_over_best(self, batch: int) -> float | None:
        """The server's choice over the best width of the same batch, plain decoding among them."""
        pinned = [found[batch] for width, found in self.over_plain.items() if width is not None and batch in found]
        chosen = self.over_plain.get(None, {}).get(batch)
        return chosen / max(pinned) if chosen is not None else None


def speeds(rows: Sequence[Row]) -> Iterator[Speeds]:
    """Yields the speeds of the rows of one shape, cut and context by accept length."""
    rows = at(rows)
    plain = {row["batch"]: row["tok_s"] for row in rows if row["width"] == 1 and "tok_s" in row}
    for length in sorted({row["forced_accept_length"] for row in rows} - {1.0}):
        found: dict[int | None, dict[int, float]] = {1: dict.fromkeys(plain, 1.0)}
        for row in at(rows, forced_accept_length=length):
            if row["batch"] in plain:
                found.setdefault(row["width"], {})[row["batch"]] = row["tok_s"] / plain[row["batch"]]
        widths = sorted(width for width in found if width is not None)
        ordered = {width: found[width] for width in [*widths, *([None] if None in found else [])]}
        yield Speeds(length, sorted(plain), ordered)


def picture(found: Speeds, title: str) -> plt.Figure:
    """Speed over plain decoding by requests at once, a line per width; the server's choice black and dashed."""
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    styles = styles_for([text_of(width) for width in found.over_plain if width is not None])
    for width, line in found.over_plain.items():
        batches = sorted(line)
        ratios = [line[batch] for batch in batches]
        if width is None:
            axes.plot(batches, ratios, "--", color="black", linewidth=2.5, label="auto")
        else:
            style = styles[text_of(width)]
            name = "plain decoding" if width == 1 else text_of(width)
            axes.plot(batches, ratios, marker=style.marker, color=style.colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(found.batches, [str(batch) for batch in found.batches])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.set(xlabel="requests at once", ylabel="tokens per second over plain decoding", ylim=(0, None))
    axes.set_title(f"{title}: {found.accept_length:g} tokens accepted a round")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def markdown(found: Speeds) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows: speed over plain decoding by width and batch, and what the choice loses to the best."""
    lines = [
        [text_of(width), *(_ratio(line.get(batch)) for batch in found.batches)]
        for width, line in found.over_plain.items()
        if width != 1
    ]
    if None in found.over_plain:
        lines.append(["auto over the best", *(_ratio(found.auto_over_best(batch)) for batch in found.batches)])
    return ["", *map(str, found.batches)], lines


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
