"""Command line of the report; see ``--help``."""

import argparse
import sys
from pathlib import Path

from benchmark.sweep.config import SweepError
from benchmark.sweep.results import FILE, read_rows

from .points import points_of
from .published import published


def main() -> int:
    """Returns 0, or 2 after an error in one line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.report",
        description="Draw a results folder: report.html, table.md and a PNG per picture, all in the folder itself.",
    )
    parser.add_argument("results", type=Path, help="folder that benchmark.sweep wrote")
    parser.add_argument("--out", type=Path, help="folder for the report (default: the results folder)")
    parser.add_argument("--published", metavar="MODEL", help="lay figures that others reported for MODEL over ours")
    options = parser.parse_args()
    try:
        rows = read_rows(options.results)
        points = points_of(rows)
        if not points:
            raise SweepError(f"{options.results / FILE} has no measured row; {len(rows)} rows failed")
        overlay = published(options.published) if options.published else []
    except (SweepError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        from .write import write
    except ModuleNotFoundError as error:
        print(f"error: no module {error.name}: pip install -r benchmark/requirements.txt", file=sys.stderr)
        return 2
    failed = [row for row in rows if row["status"] != "ok"]
    print(write(options.out or options.results, options.results.resolve().name, points, failed, overlay))
    return 0


if __name__ == "__main__":
    sys.exit(main())
