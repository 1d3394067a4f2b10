"""Command line of the report; see ``--help``."""

import argparse
import sys
from pathlib import Path

from benchmark.command import BenchmarkError, run
from benchmark.round.table import FILE as ROUNDS
from benchmark.round.table import read_table
from benchmark.sweep.results import FILE, read_rows

from .points import points_of
from .published import published


def report(options: argparse.Namespace) -> int:
    """Returns 0."""
    folder, out = options.results, options.out or options.results
    name = folder.resolve().name
    if (folder / ROUNDS).is_file():
        if options.published:
            raise BenchmarkError("--published: figures of others are laid over a sweep, and this is a table of rounds")
        from .write import write_rounds

        print(write_rounds(out, name, read_table(folder)))
        return 0
    rows = read_rows(folder)
    points = points_of(rows)
    if not points:
        raise BenchmarkError(
            f"{folder} has neither {ROUNDS} nor a measured row in {FILE}; {len(rows)} rows failed: run benchmark.sweep "
            "or benchmark.round first"
        )
    overlay = published(options.published) if options.published else []
    from .write import write

    print(write(out, name, points, [row for row in rows if row["status"] != "ok"], overlay))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.report",
        description="Draw a results folder: report.html, table.md and a PNG per picture, all in the folder itself.",
    )
    parser.add_argument("results", type=Path, help="folder that benchmark.sweep or benchmark.round wrote")
    parser.add_argument("--out", type=Path, help="folder for the report (default: the results folder)")
    parser.add_argument("--published", metavar="MODEL", help="lay figures that others reported for MODEL over ours")
    return run(parser, report)


if __name__ == "__main__":
    sys.exit(main())
