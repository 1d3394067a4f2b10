"""Reads the machine. Each probe is guarded and has a time limit: one that fails is a line in the report."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .compiled_kernels import read_cache
from .facts import CacheFacts, DiskFacts, Facts, FlashInferFacts
from .nvidia_smi import GPU_FIELDS, parse_cuda_version, parse_gpus, parse_matrix
from .storage import read_disk
from .toolkits import Version, find_toolkits

_SECONDS = 8
_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CONDA_PREFIX",
    "FLASHINFER_CUDA_ARCH_LIST",
    "FLASHINFER_DISABLE_JIT",
    "FLASHINFER_WORKSPACE_BASE",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_PTXAS_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "LD_LIBRARY_PATH",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "SGLANG_CACHE_DIR",
    "HF_HOME",
    "HF_HUB_CACHE",
    "CC",
    "CXX",
)


GPU_PROBES = ("driver", "gpus", "peers", "links")
"""What a launch asks, in less than a second."""


def read_machine(only: Collection[str] | None = None) -> Facts:
    """Facts of this machine, in a few seconds, with or without a GPU; ``only`` names the probes that are run."""
    probes: dict[str, Callable[[], Any]] = {
        "torch": lambda: _package("torch"),
        "torch_cuda": _torch_cuda,
        "driver": _driver,
        "driver_cuda": _driver_cuda,
        "gpus": _gpus,
        "toolkits": lambda: tuple(find_toolkits()),
        "host_compiler": lambda: shutil.which(os.environ.get("CXX") or "c++"),
        "ninja": _ninja,
        "flashinfer": _flashinfer,
        "caches": lambda: tuple(_caches()),
        "nccl": lambda: _package("nvidia-nccl-cu13") or _package("nvidia-nccl-cu12"),
        "peers": lambda: _matrix("topo", "-p2p", "r"),
        "links": lambda: _matrix("topo", "-m"),
        "iommu": _iommu,
        "numa_nodes": lambda: len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "shared_memory_gib": lambda: round(shutil.disk_usage("/dev/shm").total / 2**30, 2),
        "disks": lambda: tuple(_disks()),
        "triton_ptxas": _triton_ptxas,
    }
    values: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, probe in probes.items():
        if only is not None and name not in only:
            continue
        try:
            values[name] = probe()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return Facts(
        python=platform.python_version(),
        machine=platform.machine(),
        environment={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        failed=failed,
        **values,
    )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {said[0] if said else 'no output'}")
    return done.stdout


def _smi(*arguments: str) -> str | None:
    """What nvidia-smi prints; None where there is none."""
    return _run("nvidia-smi", *arguments) if shutil.which("nvidia-smi") else None


def _driver() -> str | None:
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except OSError:
        return None
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", first)
    return found[1] if found else first


def _driver_cuda() -> Version | None:
    banner = _smi()
    return parse_cuda_version(banner) if banner else None


def _gpus() -> tuple:
    table = _smi(f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits")
    return parse_gpus(table) if table else ()


def _matrix(*arguments: str) -> tuple[tuple[str, ...], ...]:
    table = _smi(*arguments)
    return parse_matrix(table) if table else ()


def _torch_cuda() -> Version | None:
    """From torch's file of versions: importing torch takes seconds, and fails where a doctor is needed most."""
    for folder in _packages():
        file = folder / "torch" / "version.py"
        if file.is_file():
            found = re.search(r"^cuda\b.*=\s*['\"](\d+)\.(\d+)", file.read_text(), re.MULTILINE)
            return (int(found[1]), int(found[2])) if found else None
    return None


def _triton_ptxas() -> Version | None:
    for folder in _packages():
        versions = []
        for ptxas in (folder / "triton" / "backends" / "nvidia" / "bin").glob("ptxas*"):
            found = re.search(r"release (\d+)\.(\d+)", _run(str(ptxas), "--version"))
            if found:
                versions.append((int(found[1]), int(found[2])))
        if versions:
            return max(versions)
    return None


def _ninja() -> str | None:
    return shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))


def _flashinfer() -> FlashInferFacts:
    return FlashInferFacts(
        _package("flashinfer-python"), _package("flashinfer-jit-cache"), _package("flashinfer-cubin")
    )


def _caches() -> Iterator[CacheFacts]:
    base = Path(os.path.expanduser(os.environ.get("SGLANG_CACHE_DIR") or "~/.cache/sglang"))
    roots = [base, *sorted(base.glob("flashinfer/*")), Path.home()]
    named = os.environ.get("FLASHINFER_WORKSPACE_BASE")
    for root in dict.fromkeys([*([Path(named)] if named else []), *roots]):
        if (root / ".cache" / "flashinfer").is_dir():
            yield read_cache(root)


def _disks() -> Iterator[DiskFacts]:
    home = Path(os.path.expanduser(os.environ.get("HF_HOME") or "~/.cache/huggingface"))
    yield read_disk(Path(os.environ.get("HF_HUB_CACHE") or home / "hub"))


def _iommu() -> bool | None:
    """By the kernel's device tree: NVIDIA's display controllers whose addresses go through a translating domain."""
    kinds = set()
    for device in Path("/sys/bus/pci/devices").glob("*"):
        kind = device / "iommu_group" / "type"
        if _content(device / "vendor") == "0x10de" and _content(device / "class").startswith("0x03") and kind.is_file():
            kinds.add(_content(kind))
    return any(kind.startswith("DMA") for kind in kinds) if kinds else None


def _content(file: Path) -> str:
    return file.read_text().strip()


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _packages() -> list[Path]:
    return [Path(folder) for folder in sys.path if folder and Path(folder).is_dir()]
