"""Whether FlashInfer can get its kernels on this machine, and for which architecture it should build them.

FlashInfer compiles kernels on first use unless a package with prebuilt ones is installed. The compiler is the nvcc of
CUDA_HOME or CUDA_PATH, else the one on PATH, else the one of /usr/local/cuda; what it can build decides, not the CUDA
that PyTorch was built with. The facts about FlashInfer are those of release 0.7.2.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

ARCH_LIST_VARIABLE = "FLASHINFER_CUDA_ARCH_LIST"
DEFAULT_CUDA_HOME = Path("/usr/local/cuda")
_PROBE_SECONDS = 20

Version = tuple[int, int]

# The first nvcc that knows a GPU, by compute capability. Newer GPUs of a row's major version need what is listed for
# (major, None).
_FIRST_NVCC: dict[tuple[int, int | None], Version] = {
    (10, 0): (12, 8),
    (10, None): (12, 9),
    (12, 0): (12, 8),
    (12, None): (12, 9),
}
# From here on nvcc has the family target of compute capability 12.0.
_FAMILY_TARGET_NVCC = (12, 9)
# Headers beyond the compiler's own that a use of FlashInfer compiles against.
_HEADERS = {"attention": (), "sampling": ("curand_kernel.h",)}


@dataclass(frozen=True)
class Toolkit:
    """The CUDA toolkit that FlashInfer would compile with."""

    home: Path
    version: Version | None  # of its nvcc; None where that cannot be run
    problem: str | None = None  # what is wrong with its nvcc


def find_toolkit(environment: Mapping[str, str] = os.environ) -> Toolkit:
    """The toolkit by FlashInfer's own order of search, and the version that its nvcc reports."""
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    if home is None:
        nvcc = shutil.which("nvcc", path=environment.get("PATH"))
        home = Path(nvcc).parent.parent if nvcc else DEFAULT_CUDA_HOME
    return read_toolkit(Path(home))


def read_toolkit(home: Path) -> Toolkit:
    """The toolkit at ``home``; what cannot be read is told in ``problem``."""
    nvcc = home / "bin" / "nvcc"
    if not nvcc.is_file():
        return Toolkit(home, None, f"there is no {nvcc}")
    try:
        output = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Toolkit(home, None, f"{nvcc} cannot be run ({type(error).__name__})")
    release = re.search(r"release (\d+)\.(\d+)", output)
    if release is None:
        return Toolkit(home, None, f"{nvcc} does not tell its release")
    return Toolkit(home, (int(release[1]), int(release[2])))


def flashinfer_problem(
    capability: Version, use: str, toolkit: Toolkit, prebuilt: frozenset[str], environment: Mapping[str, str]
) -> str | None:
    """Why FlashInfer cannot get its kernels for a GPU of compute ``capability``, or None if it can.

    ``use`` is "attention" or "sampling"; ``prebuilt`` holds the architectures of installed prebuilt kernels ("sm90a").
    """
    major, minor = capability
    if any(_runs_on(architecture, capability) for architecture in prebuilt):
        return None
    if environment.get("FLASHINFER_DISABLE_JIT"):
        return "FLASHINFER_DISABLE_JIT is set and no prebuilt kernels for this GPU are installed (flashinfer-jit-cache)"
    if toolkit.version is None:
        return f"{toolkit.problem}; set CUDA_HOME to a CUDA toolkit, or install flashinfer-jit-cache"
    needed = _FIRST_NVCC.get(capability) or _FIRST_NVCC.get((major, None))
    if needed is not None and toolkit.version < needed:
        return (
            f"the CUDA toolkit at {toolkit.home} is {_text(toolkit.version)}, and a GPU of compute capability "
            f"{major}.{minor} needs {_text(needed)} or newer{_newer_toolkit(needed, toolkit.home)}"
        )
    missing = [header for header in _HEADERS[use] if not _has_header(toolkit.home, header)]
    if missing:
        return (
            f"the CUDA toolkit at {toolkit.home} has no {', '.join(missing)}; install its cuRAND development files "
            f"(libcurand-dev-{toolkit.version[0]}-{toolkit.version[1]})"
        )
    return None


def choose_flashinfer(available: bool, use: str) -> bool:
    """Whether to choose FlashInfer by default for ``use`` ("attention" or "sampling").

    ``available`` says whether it is installed on a CUDA machine. If it cannot get its kernels, the reason is logged
    and the answer is no: the default is then a backend that compiles nothing with nvcc.
    """
    if not available:
        return False
    from sglang.srt.runtime_context import get_platform

    capability = get_platform().device_capability
    problem = flashinfer_problem(capability, use, find_toolkit(), prebuilt_architectures(), os.environ)
    if problem is not None:
        _warn_once(f"FlashInfer is not taken as the default {use} backend: {problem}.")
    return problem is None


def warn_of_unusable_flashinfer(server_args: ServerArgs) -> None:
    """Say at start that FlashInfer, asked for by name, cannot compile here; the default is never one that cannot.

    A warning and no refusal, since kernels that an earlier start compiled are in FlashInfer's cache.
    """
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
    from sglang.srt.runtime_context import get_platform

    view = resolved_view(server_args)
    named = {
        "attention": "flashinfer" in (*attention_backends_of(view), view.speculative_draft_attention_backend),
        "sampling": view.sampling_backend == "flashinfer",
    }
    if not any(named.values()) or not get_platform().has_flashinfer:
        return
    capability = get_platform().device_capability
    for use in (use for use, asked_for in named.items() if asked_for):
        problem = flashinfer_problem(capability, use, find_toolkit(), prebuilt_architectures(), os.environ)
        if problem is not None:
            other = {"attention": "triton", "sampling": "pytorch"}[use]
            _warn_once(
                f"--{use}-backend flashinfer: FlashInfer cannot compile its kernels: {problem}. Unless an earlier "
                f"start compiled them, the first use fails; --{use}-backend {other} needs no nvcc."
            )


def arch_list(capability: Version, upstream_default: str) -> str:
    """The architectures that FlashInfer should build for, as its environment variable spells them.

    What the user set is kept, in the separators that FlashInfer reads. Otherwise it is ``upstream_default``, except on
    compute capability 12.x, where the family target is better where nvcc has it. Raises ValueError for a user's list
    that is none.
    """
    asked_for = os.environ.get(ARCH_LIST_VARIABLE, "").strip()
    if asked_for:
        return _normalized(asked_for, capability)
    if capability == (12, 0):
        return "12.0f" if _compiler_version() >= _FAMILY_TARGET_NVCC else "12.0a"
    return upstream_default


@functools.cache
def prebuilt_architectures() -> frozenset[str]:
    """Architectures of the prebuilt kernels that are installed beside FlashInfer; empty without any."""
    if importlib.util.find_spec("flashinfer_jit_cache") is None:
        return frozenset()
    try:
        providers = importlib.import_module("flashinfer_jit_cache").get_jit_cache_providers()
        return frozenset(architecture for provider in providers for architecture in provider.cuda_architectures)
    except Exception as error:
        logger.warning("flashinfer-jit-cache is installed and cannot be read: %s", error)
        return frozenset()


def _runs_on(architecture: str, capability: Version) -> bool:
    """Whether kernels built for ``architecture`` run on the GPU: "a" targets on their own, others on later ones too."""
    target = re.fullmatch(r"sm(\d{1,2})(\d)([af]?)", architecture)
    if target is None or int(target[1]) != capability[0]:
        return False
    return int(target[2]) == capability[1] or (target[3] != "a" and int(target[2]) < capability[1])


def _compiler_version() -> Version:
    """Of nvcc, or where there is none, of the CUDA that PyTorch was built with, as FlashInfer counts."""
    version = find_toolkit().version
    if version is not None:
        return version
    import torch

    major, minor = (torch.version.cuda or "0.0").split(".")[:2]
    return int(major), int(minor)


def _normalized(asked_for: str, capability: Version) -> str:
    entries = re.split(r"[\s,;]+", asked_for.strip(" ,;"))
    for entry in entries:
        if not re.fullmatch(r"\d+\.\d+[af]?", entry):
            raise ValueError(
                f"{ARCH_LIST_VARIABLE}={asked_for!r}: {entry!r} is no compute capability. Write them as in "
                "'9.0a 12.0f', or unset the variable."
            )
    this_gpu = f"{capability[0]}.{capability[1]}"
    if this_gpu not in {entry.rstrip("af") for entry in entries}:
        logger.warning(
            "%s=%s does not name this GPU (%s): FlashInfer's kernels will not run on it.",
            ARCH_LIST_VARIABLE,
            asked_for,
            this_gpu,
        )
    return " ".join(entries)


def _newer_toolkit(needed: Version, current: Path) -> str:
    """Where another toolkit would do, as the end of a sentence."""
    for home in sorted(DEFAULT_CUDA_HOME.parent.glob("cuda-*"), reverse=True):
        toolkit = read_toolkit(home)
        if home != current and toolkit.version is not None and toolkit.version >= needed:
            return f"; {home} is {_text(toolkit.version)}: set CUDA_HOME={home}"
    return ""


def _has_header(home: Path, header: str) -> bool:
    return any((folder / header).is_file() for folder in [home / "include", *home.glob("targets/*/include")])


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
