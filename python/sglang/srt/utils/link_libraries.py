"""A folder that a linker finds CUDA's libraries in, for toolkits that hold them under versioned names alone.

pip's packages bring ``lib/libcudart.so.13`` and no ``libcudart.so``, and no stub of the driver's library, while
compiled modules are linked with ``-lcudart -lcuda`` and the folder ``lib64``. The folder goes on LIBRARY_PATH.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from sglang.cuda_doctor.toolkits import Toolkit


def link_libraries(toolkit: Toolkit, folder: Path) -> None:
    """Make ``folder`` hold libcudart.so of ``toolkit``, and libcuda.so: its stub, else the installed driver's."""
    folder.mkdir(parents=True, exist_ok=True)
    if toolkit.runtime is not None:
        _link(folder / "libcudart.so", Path(toolkit.runtime))
    driver = driver_library(Path(toolkit.home))
    if driver is not None:
        _link(folder / "libcuda.so", driver)


def driver_library(home: Path) -> Path | None:
    """What ``-lcuda`` can be linked with: the toolkit's stub, else the driver's library that the loader knows."""
    for pattern in ("lib64/stubs", "lib/stubs", "targets/*/lib/stubs"):
        for stub in home.glob(f"{pattern}/libcuda.so"):
            return stub
    try:
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"libcuda\.so(?:\.1)? .*=> (\S+)", listed)
    return Path(found[1]) if found else None


def _link(link: Path, target: Path) -> None:
    """A symbolic link that other processes never see absent."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    with tempfile.TemporaryDirectory(dir=link.parent) as scratch:
        new = Path(scratch) / link.name
        new.symlink_to(target)
        new.replace(link)
