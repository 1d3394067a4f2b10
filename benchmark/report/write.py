"""Every file of a report into one folder."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.command import BenchmarkError
from benchmark.round import plots as round_plots
from benchmark.round.speeds import markdown as speed_table
from benchmark.round.speeds import picture as speed_picture
from benchmark.round.speeds import speeds
from benchmark.round.table import at

from . import plots
from .page import page, rounds_page
from .points import Point, Row
from .published import Figure
from .style import styles_for
from .table import as_table, markdown

PAGE, TABLE = "report.html", "table.md"


def write(
    folder: Path, name: str, points: Sequence[Point], failed: Sequence[Row], published: Sequence[Figure] = ()
) -> Path:
    """Writes pictures, table and page into ``folder`` and returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    configurations = sorted(
        dict.fromkeys(point.configuration for point in points),
        key=lambda configuration: not any(point.plain for point in points if point.configuration == configuration),
    )
    styles = styles_for(configurations)
    pictures: dict[str, list[Path]] = {}
    for workload in dict.fromkeys(point.workload for point in points):
        group = [point for point in points if point.workload == workload]
        pictures[workload] = []
        for title, draw in plots.PICTURES.items():
            extra = {"published": published} if draw is plots.throughput else {}
            if (figure := draw(group, styles, **extra)) is not None:
                path = folder / f"{workload}-{title}.png"
                plots.save(figure, path)
                pictures[workload].append(path)
    (folder / TABLE).write_text(markdown(points, failed))
    (folder / PAGE).write_text(page(name, points, failed, pictures, published))
    return folder / PAGE


def write_rounds(folder: Path, name: str, rows: Sequence[Row]) -> Path:
    """Writes pictures, tables and page of a round cost table into ``folder`` and returns the page's path."""
    groups = list(round_plots.groups(rows))
    if not groups:
        raise BenchmarkError(f"no row was measured: {rows[0]['reason'] if rows else 'the table is empty'}")
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, list[Path]] = {}
    tables = []
    for title, group in groups:
        first = group[0]
        pictures[title] = []
        for kind, draw in round_plots.PICTURES.items():
            path = folder / f"{first['shape']}-{first['layers']}-{first['context']}-{kind}.png"
            plots.save(draw(group, title), path)
            pictures[title].append(path)
        tables.append(f"**{title}**: ms of the target's forward by width and requests at once (over the least time)\n")
        tables.append(as_table(*round_plots.markdown(group)))
        same = {name: first[name] for name in ("shape", "layers", "context")}
        for found in speeds(at(rows, **same)):
            path = folder / f"{'-'.join(map(str, same.values()))}-speed-at-{found.accept_length:g}.png"
            plots.save(speed_picture(found, title), path)
            pictures[title].append(path)
            tables.append(f"\n**{title}**: tokens per second over plain decoding's by requests at once, "
                          f"{found.accept_length:g} tokens accepted a round\n")  # fmt: skip
            tables.append(as_table(*speed_table(found)))
    (folder / TABLE).write_text("\n".join(tables))
    (folder / PAGE).write_text(rounds_page(name, rows, pictures))
    return folder / PAGE
