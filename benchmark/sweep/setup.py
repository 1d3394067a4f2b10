"""What a row was measured with: versions, hardware, and the server's own account of itself."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from .config import Configuration
from .gpu import Gpus
from .server import interpreter

ROOT = Path(__file__).parents[2]
_VERSION = "import importlib.metadata as m, platform as p; print(p.python_version(), m.version('torch'))"


def describe(configuration: Configuration, info: dict[str, Any], gpus: Gpus) -> dict[str, Any]:
    """Returns the setup of a row; ``info`` is what the server says at ``/server_info``."""
    python, torch = (None, None) if configuration.url else _versions(interpreter(configuration))
    return {
        "sglang": info.get("version"),
        "commit": _commit(),
        "python_version": python,
        "torch": torch,
        "gpus": gpus.names(),
        "driver": gpus.driver(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "dtype": info.get("dtype"),
        "attention_backend": info.get("attention_backend"),
        "tp_size": info.get("tp_size"),
        "pp_size": info.get("pp_size"),
        "ep_size": info.get("ep_size"),
    }


@cache
def _versions(python: str) -> tuple[str | None, str | None]:
    answer = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True)
    words = answer.stdout.split()
    return (words[0], words[1]) if len(words) == 2 else (None, None)


@cache
def _commit() -> str | None:
    """The checkout's commit, with ``-dirty`` where files differ from it; None outside of a checkout."""
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        answer = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return answer.stdout.strip() or None


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
