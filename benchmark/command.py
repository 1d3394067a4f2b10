"""What the benchmarks' command lines share: an error is one line and status 2, a stop says that the command goes on."""

import argparse
import sys
from collections.abc import Callable

from sglang.bundled_pair.server_process import StopRequested, raise_on_stop_signals


class BenchmarkError(RuntimeError):
    """A benchmark cannot go on; the message is one line: what was asked, what was found, what to do."""


def run(parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int]) -> int:
    """Parses the command line and returns the exit status: ``body``'s, 2 after an error, 130 after Ctrl-C."""
    options = parser.parse_args()
    raise_on_stop_signals()
    try:
        return body(options)
    except StopRequested as stop:
        print(f"{stop}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"error: no module {error.name}: pip install -r benchmark/requirements.txt", file=sys.stderr)
    return 2
