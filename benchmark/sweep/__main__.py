"""Command line of the sweep; see ``--help``."""

import argparse
import sys
from pathlib import Path

from benchmark.command import run_resumable

from .config import load_config
from .results import FILE, Results
from .run import Sweep


def sweep(options: argparse.Namespace) -> int:
    """Returns 0, or 1 where rows failed."""
    config = load_config(options.config)
    results = Results(options.out or Path("results") / config.name)
    if options.retry_failed:
        results.drop_failed()
    failed = Sweep(config, results).run()
    print(f"{len(results.rows)} rows, {failed} of them failed: {results.folder / FILE}")
    print(f"python -m benchmark.report {results.folder} draws them")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.sweep",
        description="Serve a model in several configurations, measure each, and go on where an earlier run stopped.",
    )
    parser.add_argument("config", type=Path, help="what to measure, such as benchmark/configs/smollm2_cpu.yaml")
    parser.add_argument("--out", type=Path, help="results folder (default: results/NAME of the configuration)")
    parser.add_argument("--retry-failed", action="store_true", help="measure failed rows again")
    return run_resumable(parser, sweep)


if __name__ == "__main__":
    sys.exit(main())
