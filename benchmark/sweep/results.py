"""The results folder: one JSON line per row in ``results.jsonl``; a kill at any moment loses no finished row."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .config import SweepError
from .plan import Cell

Row = dict[str, Any]
FILE = "results.jsonl"


def read_rows(folder: Path, file: str = FILE) -> list[Row]:
    """Returns the rows of ``folder``; a last line that a kill left incomplete is not one. Raises SweepError else."""
    path = folder / file
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise SweepError(f"{path}, line {number} is no JSON ({error.msg}): remove the line") from None
    return rows


class Results:
    """The rows of one folder, read at the start and appended to."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Cuts off what a kill left of a row, so that the next one starts on a line of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rows = read_rows(folder)
        self._path = folder / FILE
        if self._path.is_file():
            rewrite_rows(self._path, self.rows)

    def require_same_setup(self, cells: Sequence[Cell]) -> None:
        """Raises SweepError if a row of the same name was measured with another setup than ``cells`` ask for."""
        asked = {cell.key: cell.digest for cell in cells}
        for row in self.rows:
            if (digest := asked.get(_key(row))) and digest != row["digest"]:
                raise SweepError(
                    f"{self._path} holds {row['configuration']} on {row['workload']} measured with other settings: "
                    "give another folder with --out, or rename the configuration"
                )

    def is_done(self, cell: Cell) -> bool:
        """True where ``cell`` or its whole configuration has a row, failed or not."""
        name = cell.configuration.name
        return any(_key(row) in (cell.key, (name, None, None, None)) for row in self.rows)

    def drop_failed(self) -> None:
        """Forgets failed rows, so that they are measured again."""
        self.rows = [row for row in self.rows if row["status"] == "ok"]
        rewrite_rows(self._path, self.rows)

    def add(self, row: Row) -> None:
        """Appends ``row``; it is on disk when this returns."""
        self.rows.append(row)
        append_row(self._path, row)


def append_row(path: Path, row: Row) -> None:
    """Appends one line; it is on disk when this returns."""
    with path.open("a") as file:
        file.write(_line(row))
        file.flush()
        os.fsync(file.fileno())


def rewrite_rows(path: Path, rows: Sequence[Row]) -> None:
    """Replaces the file at once."""
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(map(_line, rows)))
    temporary.replace(path)


def _key(row: Row) -> tuple:
    return row["configuration"], row["workload"], row["concurrency"], row["repeat"]


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
