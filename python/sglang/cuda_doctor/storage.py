"""The disk below a folder of models."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from .facts import DiskFacts

_GIB = 2**30
_WALK_SECONDS = 2.0  # a folder on a slow network file system may take minutes to list


def read_disk(folder: Path) -> DiskFacts:
    """Facts about the disk of ``folder``, or of the nearest folder above it that exists."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    filesystem = _filesystem(Path(os.path.realpath(place)))
    return DiskFacts(
        str(folder),
        filesystem,
        _rotational(place),
        round(shutil.disk_usage(place).free / _GIB, 1),
        round(_large_files(folder) / _GIB, 1),
    )


def _filesystem(place: Path) -> str:
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, name, *_ = line.split()
        mount = mount.replace("\\040", " ")
        if len(mount) >= len(best) and (place == Path(mount) or Path(mount) in place.parents):
            best, kind = mount, name
    return kind


def _rotational(place: Path) -> bool | None:
    """By the kernel; None for file systems without a block device of their own."""
    device = os.stat(place).st_dev
    link = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for queue in (link / "queue", link / ".." / "queue"):  # a partition has its queue on the disk above it
        if (queue / "rotational").is_file():
            return (queue / "rotational").read_text().strip() == "1"
    return None


def _large_files(folder: Path) -> int:
    """Bytes in files of a gibibyte or more, of those that can be listed in the time."""
    total, end = 0, time.monotonic() + _WALK_SECONDS
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(root, name))
            except OSError:
                continue
            total += status.st_size if status.st_size >= _GIB else 0
        if time.monotonic() > end:
            break
    return total
