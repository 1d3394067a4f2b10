"""The pictures of a round cost table, and the table itself; one folder may hold several shapes."""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmark.report.style import FIGURE, styles_for

from .table import at

import matplotlib.pyplot as plt  # isort: skip  (style chooses the backend)

Row = dict[str, Any]
_DRAWN_BATCHES = 6


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yields a title and the measured costs of each shape, cut and context."""
    measured = at(rows, forced_accept_length=1.0)
    keys = sorted({(row["shape"], row["layers"], row["context"]) for row in measured})
    for shape, layers, context in keys:
        group = at(measured, shape=shape, layers=layers, context=context)
        whole = group[0]["layers_of_model"]
        cut = f"{layers} of {whole} layers" if layers != whole else f"{layers} layers"
        yield f"{shape}, {cut}, {context} tokens before", sorted(group, key=lambda row: (row["batch"], row["width"]))


def target_ms(row: Row) -> float:
    """Time of the target's forward: the server's own, or of the whole step in plain decoding."""
    return row["verify_ms"] or row["round_ms"]


def cost(rows: Sequence[Row], title: str) -> plt.Figure:
    """Time of the target's forward over the width, a line per batch; the floor dotted in the same grey."""
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    _by_batch(axes, rows, [target_ms, lambda row: row["floor_ms"]])
    axes.plot([], [], ":", color="black", label="least time by bandwidth")
    axes.set(yscale="log", ylabel="ms, the target's forward", title=f"Verify by width: {title}")
    return _finish(figure, axes, rows)


def distance(rows: Sequence[Row], title: str) -> plt.Figure:
    """Time over the floor, by width; 1 is the best possible."""
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    _by_batch(axes, rows, [lambda row: row["distance"]])
    axes.axhline(1, color="black", linewidth=1)
    axes.set(yscale="log", ylabel="time over least time", title=f"Distance to the bandwidth floor: {title}")
    return _finish(figure, axes, rows)


PICTURES = {"verify-by-width": cost, "distance-to-floor": distance}


def markdown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows: milliseconds of the target's forward by width and batch, over the floor in brackets."""
    batches = sorted({row["batch"] for row in rows})
    found = {(row["width"], row["batch"]): f"{target_ms(row):.3g} ({row['distance']:.3g}x)" for row in rows}
    widths = sorted({row["width"] for row in rows})
    return ["width", *map(str, batches)], [[str(w), *(found.get((w, b), "") for b in batches)] for w in widths]


def _by_batch(axes: plt.Axes, rows: Sequence[Row], measures: Sequence[Any]) -> None:
    batches = sorted({row["batch"] for row in rows})
    step = max(1, -(-len(batches) // _DRAWN_BATCHES))
    drawn = [*batches[::step], *([batches[-1]] if batches[::step][-1] != batches[-1] else [])]
    styles = styles_for([str(batch) for batch in drawn])
    for batch in drawn:
        group, style = at(rows, batch=batch), styles[str(batch)]
        xs = [row["width"] for row in group]
        axes.plot(xs, [measures[0](row) for row in group], marker=style.marker, linestyle="-", color=style.colour,
                  label=f"{batch} at once")  # fmt: skip
        for measure in measures[1:]:
            axes.plot(xs, [measure(row) for row in group], linestyle=":", marker=style.marker, markersize=3,
                      color=style.colour)  # fmt: skip


def _finish(figure: plt.Figure, axes: plt.Axes, rows: Sequence[Row]) -> plt.Figure:
    widths = sorted({row["width"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.set_xlabel("width: tokens that a round verifies per request")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
    return figure
