"""Rows to points: the repeats of one configuration at one level, by their median."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One configuration on one workload at one level of concurrency; ``rows`` are its repeats, all of them measured."""

    configuration: str
    workload: str
    concurrency: int
    rows: tuple[Row, ...]

    def value(self, measure: str) -> float | None:
        """Median of ``measure`` over the repeats that have it; None where none has. A dot leads into a mapping."""
        found = self._values(measure)
        return median(found) if found else None

    def span(self, measure: str) -> tuple[float, float] | None:
        """Least and greatest value of ``measure``."""
        found = self._values(measure)
        return (min(found), max(found)) if found else None

    @property
    def plain(self) -> bool:
        return bool(self.rows[0]["plain"])

    @property
    def tree_budget(self) -> int | None:
        return self.rows[0]["tree_budget"]

    @property
    def verify_width(self) -> int | None:
        return self.rows[0]["verify_width"]

    @property
    def forced(self) -> bool:
        return self.rows[0]["forced_accept_length"] is not None

    @property
    def text(self) -> str | None:
        """``different`` if any repeat's text is, ``same`` if all were compared and are, else None."""
        verdicts = {row.get("text") for row in self.rows}
        return "different" if "different" in verdicts else "same" if verdicts == {"same"} else None

    @property
    def may_win(self) -> bool:
        return not self.forced and self.text != "different"

    def _values(self, measure: str) -> list[float]:
        name, _, key = measure.partition(".")
        values = [row[name] for row in self.rows if row.get(name) is not None]
        return [value[key] for value in values if key in value] if key else values

    def categories(self) -> dict[str, float]:
        """Accept length by category of prompt, the mean over the repeats."""
        found: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            for category, length in (row.get("accept_length_by_category") or {}).items():
                found[category].append(length)
        return {category: mean(lengths) for category, lengths in found.items()}


def points_of(rows: Iterable[Row]) -> list[Point]:
    """Returns the points of all rows that are measured: in the order of the file, levels ascending."""
    groups: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            groups[row["configuration"], row["workload"], row["concurrency"]].append(row)
    points = [Point(*key, tuple(group)) for key, group in groups.items()]
    order = list(dict.fromkeys((point.configuration, point.workload) for point in points))
    return sorted(points, key=lambda point: (order.index((point.configuration, point.workload)), point.concurrency))


def by_configuration(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Groups ``points``, order kept."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        groups[point.configuration].append(point)
    return dict(groups)


def speedup(point: Point, points: Sequence[Point]) -> float | None:
    """Output tok/s over the baseline's on the same workload at the same level; None without it."""
    for other in points:
        baseline = point.rows[0]["baseline"], point.workload, point.concurrency
        if (other.configuration, other.workload, other.concurrency) == baseline:
            ours, plain = point.value("output_tok_s"), other.value("output_tok_s")
            return ours / plain if ours and plain else None
    return None


def best_at(points: Sequence[Point], concurrency: int) -> Point | None:
    """The point of greatest output tok/s at one level, among those that may win; ``points`` are of one workload."""
    able = [point for point in points if point.concurrency == concurrency and point.may_win]
    return max(able, key=lambda point: point.value("output_tok_s") or 0, default=None)
