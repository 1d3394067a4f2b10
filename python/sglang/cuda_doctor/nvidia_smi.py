"""Reads the tables that ``nvidia-smi`` prints."""

from __future__ import annotations

import re

from .facts import Gpu
from .toolkits import Version

GPU_FIELDS = (
    "index",
    "name",
    "compute_cap",
    "memory.total",
    "pci.bus_id",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "pcie.link.width.max",
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def parse_gpus(table: str) -> tuple[Gpu, ...]:
    """GPUs from ``--query-gpu=GPU_FIELDS --format=csv,noheader,nounits``. Raises ValueError for another table."""
    gpus = []
    for line in table.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(GPU_FIELDS):
            raise ValueError(f"nvidia-smi: expected {len(GPU_FIELDS)} columns, found {line!r}")
        index, name, capability, memory, bus, generation, width, width_max = cells
        major, _, minor = capability.partition(".")
        gpus.append(
            Gpu(
                int(index),
                name,
                (int(major), int(minor)),
                _number(memory) or 0,  # GPUs that share the host's memory have none of their own
                bus,
                _number(generation),
                _number(width),
                _number(width_max),
            )
        )
    return tuple(gpus)


def parse_matrix(table: str) -> tuple[tuple[str, ...], ...]:
    """The square part of ``topo -m`` or ``topo -p2p r``: one row and one column for each GPU."""
    rows = []
    for line in _COLOURS.sub("", table).splitlines():
        cells = line.split()
        # The head line starts with a GPU too, and its next cell is one, where a row has a relation.
        if cells and re.fullmatch(r"GPU\d+", cells[0]) and not re.match(r"GPU\d+$", (cells + [""])[1]):
            rows.append(cells[1:])
    if rows == [["CPU", "Affinity", "NUMA", "Affinity", "GPU", "NUMA", "ID"]]:  # the head line of a single GPU
        return ()
    rows = [row for row in rows if len(row) >= len(rows) and row[0] != "CPU"]
    return tuple(tuple(row[: len(rows)]) for row in rows)


def parse_cuda_version(banner: str) -> Version | None:
    """The newest CUDA that the driver serves, from nvidia-smi's banner."""
    found = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.(\d+)", banner)
    return (int(found[1]), int(found[2])) if found else None


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None
