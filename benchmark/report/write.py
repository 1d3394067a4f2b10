"""Every file of a report into one folder."""

from collections.abc import Sequence
from pathlib import Path

from . import plots
from .page import page
from .points import Point, Row
from .published import Figure
from .style import styles_for
from .table import markdown

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
