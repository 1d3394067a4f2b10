"""What the doctor knows about a machine: plain values that survive JSON, so that a report can be judged elsewhere."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from .toolkits import Toolkit, Version


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU, as its driver describes it."""

    index: int
    name: str
    capability: Version
    memory_mib: int
    bus: str = ""
    link_generation: int | None = None  # PCIe generation now; an idle link may be slow to save power
    link_width: int | None = None  # lanes now
    link_width_max: int | None = None


@dataclass(frozen=True)
class FlashInferFacts:
    """FlashInfer as installed; versions are None where a package is absent."""

    version: str | None = None
    jit_cache: str | None = None  # flashinfer-jit-cache: prebuilt kernels
    cubin: str | None = None  # flashinfer-cubin: prebuilt binaries


@dataclass(frozen=True)
class CacheFacts:
    """One folder of kernels compiled at run time."""

    folder: str
    modules: int = 0
    broken: tuple[str, ...] = ()  # modules with a file that was cut off
    toolkits: tuple[str, ...] = ()  # toolkit folders that its builds were compiled with, as spelled there


@dataclass(frozen=True)
class DiskFacts:
    """The folder that models are kept in."""

    folder: str
    filesystem: str = ""  # "ext4", "nfs4"
    rotational: bool | None = None
    free_gib: float | None = None
    large_files_gib: float = 0.0  # files of a gibibyte or more


@dataclass(frozen=True)
class Facts:
    """One machine. What could not be read is absent here and told in ``failed``: probe to reason."""

    python: str = ""
    machine: str = ""  # "x86_64"
    torch: str | None = None
    torch_cuda: Version | None = None
    driver: str | None = None
    driver_cuda: Version | None = None  # newest CUDA that the driver serves
    gpus: tuple[Gpu, ...] = ()
    toolkits: tuple[Toolkit, ...] = ()
    host_compiler: str | None = None  # path of the C++ compiler
    ninja: str | None = None
    flashinfer: FlashInferFacts = field(default_factory=FlashInferFacts)
    caches: tuple[CacheFacts, ...] = ()
    nccl: str | None = None
    peers: tuple[tuple[str, ...], ...] = ()  # [gpus, gpus] of what the driver says: "X", "OK", "NS", ...
    links: tuple[tuple[str, ...], ...] = ()  # [gpus, gpus] of the way between two: "X", "NV18", "PIX", "NODE", "SYS"
    iommu: bool | None = None  # whether the IOMMU translates the addresses of some GPU
    numa_nodes: int | None = None
    shared_memory_gib: float | None = None  # size of /dev/shm
    disks: tuple[DiskFacts, ...] = ()
    triton_ptxas: Version | None = None  # release of the newest ptxas that Triton brings
    environment: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def to_json(facts: Facts) -> dict[str, Any]:
    return dataclasses.asdict(facts)


def from_json(value: dict[str, Any]) -> Facts:
    """Facts of a report. Raises ValueError for a value that is none, and names the field."""
    return _read(Facts, value, "facts")


def _read(kind: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict) or not value.keys() <= hints.keys():
            unknown = sorted(value.keys() - hints.keys()) if isinstance(value, dict) else value
            raise ValueError(f"{name}: expected the fields of {kind.__name__}, found {unknown!r}")
        try:
            return kind(**{field: _read(hints[field], item, f"{name}.{field}") for field, item in value.items()})
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from error
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _read(arguments[0], value, name)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name}: expected a list, found {value!r}")
        items = arguments if arguments[-1] is not ... else arguments[:1] * len(value)
        return tuple(
            _read(item, part, f"{name}[{at}]") for at, (item, part) in enumerate(zip(items, value, strict=False))
        )
    if origin is dict:
        return dict(value)
    return value
