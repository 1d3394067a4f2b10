"""Runs the doctor before ``sglang`` itself is imported, where that is what was asked for.

``python -m sglang.cuda_doctor`` imports the package ``sglang`` first, and with it torch: slow, and impossible on a
machine whose torch is the trouble.
"""

import sys

_MODULE = "sglang.cuda_doctor"


def run_doctor_if_asked() -> None:
    """End the process with the doctor's report if it was started as ``python -m sglang.cuda_doctor``."""
    arguments = doctor_arguments(sys.orig_argv)
    if arguments is not None:
        from .command import main

        sys.exit(main(arguments))


def doctor_arguments(command: list[str]) -> list[str] | None:
    """The doctor's own arguments in an interpreter's command line; None where another program was asked for."""
    at = command.index("-m") + 1 if "-m" in command else len(command)
    return command[at + 1 :] if command[at : at + 1] == [_MODULE] else None
