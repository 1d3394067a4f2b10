"""Command line of the sweep; see ``--help``."""

import argparse
import sys
from pathlib import Path

from sglang.bundled_pair.server_process import StopRequested, raise_on_stop_signals

from .config import SweepError, load_config
from .results import FILE, Results
from .run import Sweep


def main() -> int:
    """Returns 0, 1 where rows failed, 2 after an error in one line, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.sweep",
        description="Serve a model in several configurations, measure each, and go on where an earlier run stopped.",
    )
    parser.add_argument("config", type=Path, help="what to measure, such as benchmark/configs/smollm2_cpu.yaml")
    parser.add_argument("--out", type=Path, help="results folder (default: results/NAME of the configuration)")
    parser.add_argument("--retry-failed", action="store_true", help="measure failed rows again")
    options = parser.parse_args()
    raise_on_stop_signals()
    try:
        config = load_config(options.config)
        results = Results(options.out or Path("results") / config.name)
        if options.retry_failed:
            results.drop_failed()
        failed = Sweep(config, results).run()
    except StopRequested as stop:
        print(f"{stop}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(results.rows)} rows, {failed} of them failed: {results.folder / FILE}")
    print(f"python -m benchmark.report {results.folder} draws them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
