"""The pictures, one function each: points of one workload in, a figure out, or None where there is nothing to draw."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmark.sweep.rounds import STAGES

from .points import Point, by_configuration, speedup
from .published import Figure as PublishedFigure
from .style import DPI, FIGURE, HATCHES, STAGE_COLOURS, Style

import matplotlib.pyplot as plt  # isort: skip  (style chooses the backend)

Styles = dict[str, Style]


def throughput(points: Sequence[Point], styles: Styles, published: Sequence[PublishedFigure] = ()) -> plt.Figure | None:
    """Output tok/s over concurrency; a bar spans the repeats.

    ``published`` figures are laid over in grey: a cross at their concurrency, a line where only the peak was reported.
    """
    figure, axes = _lines(points, styles, "output_tok_s")
    for entry in published:
        if entry.output_tok_s and not entry.concurrency:
            axes.axhline(entry.output_tok_s, color="0.6", linewidth=0.8, linestyle=":")
            axes.annotate(f"{entry.configuration}, {entry.note or 'reported'}", (0.99, entry.output_tok_s), (0, 2),
                          xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", fontsize=7,
                          color="0.3")  # fmt: skip
        elif entry.output_tok_s:
            axes.plot(entry.concurrency, entry.output_tok_s, "x", color="0.4", markersize=8)
            axes.annotate(f" {entry.configuration}", (entry.concurrency, entry.output_tok_s), fontsize=7, color="0.3")
    axes.set(ylabel="output tok/s", title="Throughput", ylim=(0, None))
    return _finish(figure, axes)


def pareto(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Output tok/s of all requests over the speed that one user sees; the numbers are levels of concurrency."""
    if not any(point.value("user_tok_s") for point in points):
        return None
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    for name, group in by_configuration(points).items():
        drawn = [point for point in group if point.value("user_tok_s")]
        xs, ys = ([point.value(measure) for point in drawn] for measure in ("user_tok_s", "output_tok_s"))
        _curve(axes, xs, ys, name, group, styles)
        for x, y, point in zip(xs, ys, drawn, strict=True):
            axes.annotate(str(point.concurrency), (x, y), (4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel="tok/s of one request (median)", ylabel="output tok/s of all", xlim=(0, None), ylim=(0, None))
    axes.set_title("Throughput against speed per user (further up and right is better)")
    return _finish(figure, axes)


def speedups(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Output tok/s over the baseline's, plain decoding as a rule, at the same level."""
    speculative = [point for point in points if point.verify_width and speedup(point, points)]
    if not speculative:
        return None
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    for name, group in by_configuration(speculative).items():
        xs = [point.concurrency for point in group]
        _curve(axes, xs, [speedup(point, points) for point in group], name, group, styles)
    axes.axhline(1, color="black", linewidth=1)
    axes.annotate("plain decoding", (0.01, 1), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                  fontsize=8)  # fmt: skip
    _levels(axes, speculative)
    axes.set(ylabel="speedup over plain decoding", title="Speedup", ylim=(0, None))
    return _finish(figure, axes)


def round_time(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Time of one round over concurrency, beside the time of one plain step."""
    drawn = [point for point in points if point.value("round_ms") or point.plain]
    if not any(point.value("round_ms") for point in drawn):
        return None
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    for name, group in by_configuration(drawn).items():
        values = [point.value("round_ms") or 1000 / (point.value("user_tok_s") or float("nan")) for point in group]
        label = f"{name}, one step" if group[0].plain else name
        _curve(axes, [point.concurrency for point in group], values, name, group, styles, label)
    _levels(axes, drawn)
    axes.set(ylabel="ms per round (median of requests)", title="Time of a round", ylim=(0, None))
    return _finish(figure, axes)


def round_stages(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Time of a round stacked by stage, where the server times its stages; beside it the rounds that are one whole.

    A bar's outline is the round as the clients see it, so what is white in it lies outside of the stages. Of many
    levels the least, the middle and the greatest are drawn.
    """
    if not any(point.value("stage_ms.verify") for point in points):
        return None
    drawn = [point for point in points if point.value("round_ms") or (point.plain and point.value("user_tok_s"))]
    levels = sorted({point.concurrency for point in drawn})
    shown = {levels[0], levels[len(levels) // 2], levels[-1]}
    drawn = sorted((point for point in drawn if point.concurrency in shown), key=lambda point: point.concurrency)
    figure, axes = plt.subplots(figsize=(FIGURE[0], 1.8 + 0.26 * len(drawn)), layout="constrained")
    places, names, place, level = [], [], 0.0, drawn[0].concurrency
    for point in drawn:
        place += 1.5 if point.concurrency != level else 1.0
        level = point.concurrency
        left = 0.0
        for stage, colour, hatch in zip(STAGES, STAGE_COLOURS, HATCHES, strict=False):
            width = point.value(f"stage_ms.{stage}") or 0.0
            axes.barh(place, width, 0.8, left=left, color=colour, edgecolor="black", linewidth=0.5, hatch=hatch,
                      label=stage if not places else None)  # fmt: skip
            left += width
        whole = point.value("round_ms") or 1000 / point.value("user_tok_s")
        axes.barh(place, whole, 0.8, fill=False, edgecolor="black", label="the round" if not places else None)
        axes.annotate(f" {whole:.3g}", (max(whole, left), place), va="center", fontsize=7)
        places.append(place)
        names.append(f"{point.configuration}{', one step' if point.plain else ''}, {point.concurrency} at once")
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="ms", title="Time of a round by stage")
    axes.margins(x=0.08)
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=1 + len(STAGES), fontsize=8)
    return figure


def accept_by_budget(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Accept length over the tree budget at the least concurrency; a chain is a level line."""
    measured = _at_least_level([point for point in points if point.value("accept_length") and not point.forced])
    trees = sorted((point for point in measured if point.tree_budget), key=lambda point: point.tree_budget)
    if not trees:
        return None
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    budgets = [point.tree_budget for point in trees]
    lengths = [point.value("accept_length") for point in trees]
    axes.plot(budgets, lengths, marker="o", color="black", label="tree")
    for x, y in zip(budgets, lengths, strict=True):
        axes.annotate(f"{y:.2f}", (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    for point in (point for point in measured if not point.tree_budget):
        style = styles[point.configuration]
        axes.axhline(point.value("accept_length"), linestyle="--", color=style.colour, marker=style.marker,
                     label=f"{point.configuration} ({point.value('accept_length'):.2f})")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(budget) for budget in budgets], minor=False)
    axes.minorticks_off()
    axes.set(xlabel="tree budget (draft nodes)", ylabel="accept length, bonus token included")
    axes.set(ylim=(1, 1.05 * max(lengths)), title="Accept length by tree budget")
    return _finish(figure, axes)


def accept_by_category(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Accept length by category of prompt at the least concurrency."""
    measured = _at_least_level([point for point in points if point.categories() and not point.forced])
    categories = sorted({category for point in measured for category in point.categories()})
    if len(categories) < 2:
        return None
    height = 0.8 / len(measured)
    figure, axes = plt.subplots(
        figsize=(FIGURE[0], 1.5 + 0.22 * len(categories) * (len(measured) + 1)), layout="constrained"
    )
    for index, point in enumerate(measured):
        style, lengths = styles[point.configuration], point.categories()
        places = [place + (index - (len(measured) - 1) / 2) * height for place in range(len(categories))]
        axes.barh(places, [lengths.get(category, 0) - 1 for category in categories], height, left=1,
                  color="white" if style.hatch else style.colour, edgecolor=style.colour, hatch=style.hatch,
                  label=_label(point.configuration, [point]))  # fmt: skip
    axes.set_yticks(range(len(categories)), categories)
    axes.invert_yaxis()
    axes.set(xlabel="accept length, bonus token included", title="Accept length by category", xlim=(1, None))
    return _finish(figure, axes)


def accepted_at_depth(points: Sequence[Point], styles: Styles) -> plt.Figure | None:
    """Share of rounds that accepted a draft at each depth, at the least concurrency, of the first repeat."""
    measured = _at_least_level([point for point in points if point.rows[0].get("accepted_at_depth")])
    if not measured:
        return None
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    deepest = 1
    for point in measured:
        shares = point.rows[0]["accepted_at_depth"]
        deepest = max(deepest, len(shares))
        _curve(axes, range(1, len(shares) + 1), shares, point.configuration, [point], styles)
    axes.set_xticks(range(1, deepest + 1))
    axes.set(xlabel="depth", ylabel="share of rounds", title="Rounds that accepted a draft at a depth", ylim=(0, 1.02))
    return _finish(figure, axes)


PICTURES: dict[str, Callable[..., plt.Figure | None]] = {
    "throughput": throughput,
    "pareto": pareto,
    "speedup": speedups,
    "round-time": round_time,
    "round-stages": round_stages,
    "accept-by-budget": accept_by_budget,
    "accept-by-category": accept_by_category,
    "accepted-at-depth": accepted_at_depth,
}


def save(figure: plt.Figure, path: Path) -> None:
    """Writes the PNG and frees the figure."""
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


def _lines(points: Sequence[Point], styles: Styles, measure: str) -> tuple[plt.Figure, plt.Axes]:
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    for name, group in by_configuration(points).items():
        xs = [point.concurrency for point in group]
        _curve(axes, xs, [point.value(measure) for point in group], name, group, styles)
        for point in group:
            low, high = point.span(measure)
            axes.vlines(point.concurrency, low, high, color=styles[name].colour, linewidth=3, alpha=0.4)
    _levels(axes, points)
    return figure, axes


def _curve(axes, xs, ys, name: str, group: Sequence[Point], styles: Styles, label: str | None = None) -> None:
    style = styles[name]
    hollow = not all(point.may_win for point in group)
    axes.plot(list(xs), list(ys), marker=style.marker, linestyle=style.line, color=style.colour, markersize=6,
              markerfacecolor="white" if hollow else style.colour, label=_label(label or name, group))  # fmt: skip


def _label(name: str, group: Sequence[Point]) -> str:
    if any(point.forced for point in group):
        return f"{name} (forced accept length)"
    return f"{name} (text differs)" if any(point.text == "different" for point in group) else name


def _levels(axes: plt.Axes, points: Sequence[Point]) -> None:
    levels = sorted({point.concurrency for point in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.minorticks_off()
    axes.set_xlabel("concurrent requests")


def _at_least_level(points: Sequence[Point]) -> list[Point]:
    return [group[0] for group in by_configuration(points).values()]


def _finish(figure: plt.Figure, axes: plt.Axes) -> plt.Figure:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
    return figure
