"""The one error type of this package, and how it tells the user what it is doing."""

import sys


class PairError(RuntimeError):
    """The pair cannot be made; the message says what was asked, what was found and what to do."""


def say(message: str) -> None:
    """Prints one line of progress to standard error, which leaves standard output for results."""
    print(message, file=sys.stderr, flush=True)
