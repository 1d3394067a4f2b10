"""The Markdown table: one row per configuration, tok/s and speedup per level, the best of each level in bold."""

from collections.abc import Sequence

from .points import Point, Row, best_at, by_configuration, speedup


def markdown(points: Sequence[Point], failed: Sequence[Row]) -> str:
    """Returns one table per workload, and one of what failed."""
    parts = []
    for workload in dict.fromkeys(point.workload for point in points):
        group = [point for point in points if point.workload == workload]
        parts.append(f"**{workload}**: output tok/s by concurrent requests (speedup over plain decoding)\n")
        parts.append(as_table(*cells(group)))
    if failed:
        rows = [[row["configuration"], _where(row), row["reason"]] for row in failed]
        parts += ["**failed**\n", as_table(["configuration", "where", "reason"], rows)]
    return "\n".join(parts)


def cells(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows, as text, for the points of one workload."""
    levels = sorted({point.concurrency for point in points})
    best = {level: best_at(points, level) for level in levels}
    header = ["configuration", "verify width", "accept length", *map(str, levels), "greedy text"]
    rows = []
    for name, group in by_configuration(points).items():
        at = {point.concurrency: point for point in group}
        tok_s = [_speed(at[level], points, at[level] is best[level]) if level in at else "" for level in levels]
        length = group[0].value("accept_length")
        rows.append([name, str(group[0].verify_width or 1), f"{length:.2f}" if length else "", *tok_s, _text(group)])
    return header, rows


def _speed(point: Point, points: Sequence[Point], best: bool) -> str:
    tok_s, ratio = point.value("output_tok_s"), speedup(point, points)
    text = f"{tok_s:,.0f}" if tok_s >= 100 else f"{tok_s:.1f}"
    text = f"**{text}**" if best else text
    return text if point.plain or ratio is None else f"{text} ({ratio:.2f}x)"


def _text(group: Sequence[Point]) -> str:
    if group[0].forced:
        return "noise (forced)"
    rows = [row for point in group for row in point.rows]
    if any(row.get("text") is None for row in rows):
        return next((row["text_reason"] for row in rows if row.get("text_reason")), "not compared")
    same, near, different = (sum(row[f"text_{kind}"] for row in rows) for kind in ("same", "near_tie", "different"))
    total = same + near + different
    if different:
        return f"differs in {different} of {total}"
    if any(row["text"] == "different" for row in rows):
        loops, plain = (sum(row[key] for row in rows) for key in ("text_loops", "text_loops_plain"))
        return f"loops in {loops} of {total}, plain in {plain}"
    return f"as plain, {near} of {total} apart at a near tie" if near else "as plain"


def _where(row: Row) -> str:
    return "all" if row["workload"] is None else f"{row['workload']} x{row['concurrency']}, repeat {row['repeat']}"


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
