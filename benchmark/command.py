"""What the benchmarks' command lines share: an error is one line and status 2, a stop says that the command goes on."""

import argparse
import sys
from collections.abc import Callable


class BenchmarkError(RuntimeError):
    """A benchmark cannot go on; the message is one line: what was asked, what was found, what to do."""


def run(parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int]) -> int:
    """Parses the command line and returns the exit status: ``body``'s, or 2 after an error in one line."""
    options = parser.parse_args()
    try:
        return body(options)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"error: no module {error.name}: pip install -r benchmark/requirements.txt", file=sys.stderr)
    return 2


def run_resumable(parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int]) -> int:
    """``run`` for what starts servers and can be stopped: Ctrl-C ends them in order, and the status is 130."""
    from sglang.bundled_pair.server_process import StopRequested, raise_on_stop_signals  # imports torch

    raise_on_stop_signals()
    try:
        return run(parser, body)
    except StopRequested as stop:
        print(f"{stop}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
