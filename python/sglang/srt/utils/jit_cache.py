"""Where FlashInfer's compiled kernels are kept: one folder for each set of things that they are compiled from.

FlashInfer 0.7.2 names its folder after its version and the target architectures alone, so kernels of another toolkit,
or of another build of the same FlashInfer, lie where the new ones are expected; and it writes the toolkit's path, as
spelled, into each build, so another spelling compiles everything again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from sglang.cuda_doctor.compiled_kernels import is_whole, module_folders, operation_folders
from sglang.cuda_doctor.toolkits import Toolkit

_KEY_DIGITS = 16


def cache_key(toolkit: Toolkit, targets: str, versions: dict[str, str]) -> str:
    """The name of the cache for kernels compiled with ``toolkit`` for ``targets``.

    ``versions`` names whatever else goes into a kernel, as ``compiled_versions`` gives it. The toolkit goes in by its
    path without symbolic links, so each spelling of it has the same key; ``targets`` in any order.
    """
    inputs = {
        "toolkit": toolkit.home,
        "compiler": toolkit.build or toolkit.nvcc,
        "headers": toolkit.headers,
        "targets": sorted(targets.split()),
        **versions,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:_KEY_DIGITS]


def compiled_versions() -> dict[str, str]:
    """Version of torch, and version and contents of FlashInfer, as installed; "absent" where they are not."""
    return {
        "torch": _version("torch"),
        "flashinfer": _version("flashinfer-python"),
        "flashinfer files": _contents("flashinfer-python"),
    }


def drop_half_finished(workspace: Path) -> list[str]:
    """Remove modules below ``workspace`` that a killed build left half written; returns their names.

    A library or object file that ends before its own section table was cut off. A module that some process is building
    at this moment is locked, and left alone.
    """
    dropped = []
    for operations in operation_folders(workspace):
        for module in module_folders(operations):
            if is_whole(module):
                continue
            with _build_lock(operations / "tmp" / f"{module.name}.lock") as free:
                if free:
                    shutil.rmtree(module, ignore_errors=True)
                    dropped.append(module.name)
    return dropped


@contextmanager
def _build_lock(path: Path) -> Iterator[bool]:
    """FlashInfer's lock of one module, without waiting; whether it was free, and could be taken at all."""
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = stack.enter_context(path.open("a"))
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held by a builder, or the folder is not ours to write
            yield False
            return
        yield True


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _version(name: str) -> str:
    found = _distribution(name)
    return found.version if found else "absent"


def _contents(name: str) -> str:
    """Digest of the list of a package's files, which holds the hash of each."""
    found = _distribution(name)
    record = found.read_text("RECORD") if found else None
    return hashlib.sha256((record or "").encode()).hexdigest()[:_KEY_DIGITS]
