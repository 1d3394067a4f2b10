"""One error type for a launch that cannot succeed, and its way to the user."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LaunchError(ValueError):
    """The server cannot start with these arguments.

    The message is one line and complete on its own: what was asked (the flag), what was found, what to do.
    Code that embeds the engine catches it as a ``ValueError``.
    """


def exit_on_launch_error(run: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a command's main function: a ``LaunchError`` ends it with the message on stderr and exit status 1.

    A stack trace would bury the one line that the user needs. Every other exception passes through.
    """

    @functools.wraps(run)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return run(*args, **kwargs)
        except LaunchError as error:
            raise SystemExit(f"error: {error}") from error

    return wrapped
