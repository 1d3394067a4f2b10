"""A folder that is either complete or absent, whatever interrupts the work and however many processes ask for it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import say

MARKER = "complete.json"


def cached_folder(folder: Path, build: Callable[[Path], None]) -> Path:
    """Returns ``folder``, filled by ``build`` if it was absent or damaged.

    ``build`` writes into a temporary sibling; a marker with the SHA-256 of every file is added and the sibling is
    renamed to ``folder``. A lock file beside it lets one process build while the others wait. What a killed process
    left behind is removed by the next one. Errors of ``build`` pass through and leave nothing.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another process is making {folder}: waiting for it")
        lock.acquire()
    try:
        for leftover in folder.parent.glob(f".{folder.name}.*.partial"):
            shutil.rmtree(leftover)
        if folder.exists():
            damage = find_damage(folder)
            if damage is None:
                return folder
            say(f"{folder} is damaged ({damage}): making it again")
            shutil.rmtree(folder)
        _build(folder, build)
    finally:
        lock.release()
    return folder


def find_damage(folder: Path) -> str | None:
    """Returns what is wrong with a finished ``folder``, or None: each file must have the hash in the marker."""
    marker = folder / MARKER
    try:
        hashes = json.loads(marker.read_text())
    except (OSError, ValueError):
        return f"{MARKER} is missing or unreadable"
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        found = sha256_of(path)
        if found != expected:
            return f"{name} has sha256 {found}, {expected} was written"
    return None


def sha256_of(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        build(partial)
        hashes = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
        (partial / MARKER).write_text(json.dumps(hashes, indent=2) + "\n")
        _make_readable(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    """Lets others read what mkdtemp and safetensors made private: a cache may be shared between users."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
