"""Folders of kernels that FlashInfer compiled: what is in them, and whether each file was written to its end."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from .facts import CacheFacts

_ELF_HEADER = struct.Struct("<4sB35xQ10x3H")  # magic, class, e_shoff, e_shentsize, e_shnum, e_shstrndx of 64-bit ELF
_ELF64 = 2


def operation_folders(workspace: Path) -> list[Path]:
    """Folders below a FlashInfer workspace (release 0.7.2) that hold one folder for each module."""
    return sorted(workspace.glob(".cache/flashinfer/*/*/cached_ops"))


def module_folders(operations: Path) -> list[Path]:
    return sorted(folder for folder in operations.iterdir() if folder.is_dir() and folder.name != "tmp")


def is_whole(module: Path) -> bool:
    """Whether every library and object file of a module was written to its end."""
    return all(is_complete(file) for pattern in ("*.so", "*.o") for file in module.glob(pattern))


def is_complete(file: Path) -> bool:
    """Whether an ELF file reaches to the end of its section table; False for an empty file and for one of no ELF."""
    try:
        with file.open("rb") as stream:
            head = stream.read(_ELF_HEADER.size)
            size = os.fstat(stream.fileno()).st_size
    except OSError:
        return False
    if len(head) < _ELF_HEADER.size:
        return False
    magic, width, table, entry_bytes, entries, _ = _ELF_HEADER.unpack(head)
    if magic != b"\x7fELF":
        return False
    return width != _ELF64 or (table > 0 and table + entry_bytes * entries <= size)


def read_cache(workspace: Path) -> CacheFacts:
    """Facts about one FlashInfer workspace."""
    modules = [module for operations in operation_folders(workspace) for module in module_folders(operations)]
    toolkits = {home for module in modules for home in _toolkit_of(module / "build.ninja")}
    return CacheFacts(
        str(workspace),
        len(modules),
        tuple(str(module) for module in modules if not is_whole(module)),
        tuple(sorted(toolkits)),
    )


def _toolkit_of(build: Path) -> list[str]:
    try:
        lines = build.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.partition("=")[2].strip() for line in lines if line.startswith("cuda_home =")]
