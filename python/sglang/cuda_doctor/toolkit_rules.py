"""What a CUDA toolkit can build, and which of several to take. Functions of values; nothing is read here.

The facts about FlashInfer are those of release 0.7.2: SM120 from nvcc 12.8 on, SM121 from 12.9, and the family target
of 12.0 from 12.9. That compiler and headers must be of one release is a check inside CUDA's own C++ headers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .toolkits import HEADER_PACKAGES, Toolkit, Version

# The first nvcc that knows a GPU, by compute capability. Newer GPUs of a row's major version need what is listed for
# (major, None).
_FIRST_NVCC: dict[tuple[int, int | None], Version] = {
    (10, 0): (12, 8),
    (10, None): (12, 9),
    (12, 0): (12, 8),
    (12, None): (12, 9),
}
# From here on nvcc has the family target of compute capability 12.0.
FAMILY_TARGET_NVCC = (12, 9)

# Headers that each use of FlashInfer compiles against; every other header of HEADER_PACKAGES serves rarer kernels.
_COMPILE_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h", "crt/host_config.h")
HEADERS = {
    "attention": _COMPILE_HEADERS,
    "sampling": (*_COMPILE_HEADERS, "curand.h", "curand_kernel.h", "curand_philox4x32_x.h"),
}
USES = tuple(HEADERS)
NAMED = ("CUDA_HOME", "CUDA_PATH")  # sources that are the user's own word


@dataclass(frozen=True)
class Problem:
    """Why a toolkit cannot build something: the cause as a clause, and a command that mends it."""

    cause: str
    fix: str

    def __str__(self) -> str:
        return f"{self.cause} (to mend it: {self.fix})"


@dataclass(frozen=True)
class Choice:
    """The toolkit to compile with, why that one, and by use what it cannot build (empty where it can build all)."""

    toolkit: Toolkit | None
    reason: str
    problems: Mapping[str, Problem]


def first_nvcc(capability: Version) -> Version | None:
    """The first nvcc release that FlashInfer builds with for a GPU; None where any will do."""
    return _FIRST_NVCC.get(capability) or _FIRST_NVCC.get((capability[0], None))


def toolkit_problem(toolkit: Toolkit, capabilities: Collection[Version], use: str) -> Problem | None:
    """Why ``toolkit`` cannot build kernels of ``use`` ("attention", "sampling") for GPUs of ``capabilities``."""
    if toolkit.nvcc is None:
        return Problem(toolkit.problem or f"{toolkit.home} has no nvcc", install_toolkit())
    for capability in sorted(capabilities):
        needed = first_nvcc(capability)
        if needed is not None and toolkit.nvcc < needed:
            return Problem(
                f"the CUDA toolkit at {toolkit.home} is {text(toolkit.nvcc)}, and a GPU of compute capability "
                f"{text(capability)} needs {text(needed)} or newer",
                install_toolkit(),
            )
    missing = [header for header in HEADERS[use] if header in toolkit.missing]
    if missing:
        return Problem(
            f"the CUDA toolkit at {toolkit.home} has no {', '.join(missing)}",
            install_headers(toolkit, missing),
        )
    if toolkit.headers is not None and toolkit.headers != toolkit.nvcc:
        return Problem(
            f"the CUDA toolkit at {toolkit.home} has nvcc {text(toolkit.nvcc)} and headers of "
            f"{text(toolkit.headers)}, which do not compile together",
            align(toolkit),
        )
    if toolkit.runtime is None:
        return Problem(
            f"the CUDA toolkit at {toolkit.home} has no libcudart.so in lib64 or lib",
            install_headers(toolkit, ["cuda_runtime.h"]),
        )
    return None


def choose_toolkit(
    toolkits: Sequence[Toolkit], capabilities: Collection[Version], torch_cuda: Version | None = None
) -> Choice:
    """The toolkit to compile with on a machine with GPUs of ``capabilities``; ``toolkits`` as ``find_toolkits`` orders.

    One that can build for every use goes before one that can build for attention alone; then the one that the user
    named, then one of PyTorch's own major version, then the order in which JIT compilers look.
    """
    if not toolkits:
        none = Problem("no CUDA toolkit was found", install_toolkit())
        return Choice(None, none.cause, dict.fromkeys(USES, none))
    problems = {toolkit.home: _problems(toolkit, capabilities) for toolkit in toolkits}
    first = toolkits[0]
    usable = [toolkit for toolkit in toolkits if "attention" not in problems[toolkit.home]]
    if not usable:
        return Choice(None, problems[first.home]["attention"].cause, problems[first.home])

    def preference(toolkit: Toolkit) -> tuple[int, bool, bool]:
        foreign = torch_cuda is not None and toolkit.nvcc is not None and toolkit.nvcc[0] != torch_cuda[0]
        return len(problems[toolkit.home]), toolkit.source not in NAMED, foreign

    best = min(usable, key=preference)
    if best is first:
        return Choice(best, WHERE[best.source], problems[best.home])
    against = next(iter(problems[first.home].values()), None)
    why = against.cause if against else f"PyTorch is built with CUDA {text(torch_cuda or (0, 0))}"
    return Choice(best, f"{WHERE[best.source]}; {first.source} was passed over: {why}", problems[best.home])


WHERE = {
    "CUDA_HOME": "named by CUDA_HOME",
    "CUDA_PATH": "named by CUDA_PATH",
    "PATH": "its nvcc is on PATH",
    "default": "the system's own",
    "pip": "installed by pip",
    "conda": "installed by conda",
    "versioned": "another version of the system's",
}


def compile_environment(toolkit: Toolkit, environment: Mapping[str, str], links: Path) -> dict[str, str]:
    """The variables that make JIT compilers use ``toolkit``, given the present ones.

    FlashInfer and upstream's kernels look in include and lib64 only. Where a toolkit keeps its parts elsewhere, CPATH
    and LIBRARY_PATH name them; ``links`` is the folder that ``link_libraries`` fills for libraries of versioned names.
    """
    changed = {"CUDA_HOME": toolkit.home, "CUDA_PATH": toolkit.home}
    home = Path(toolkit.home)
    if toolkit.includes is not None and Path(toolkit.includes) != home / "include":
        changed["CPATH"] = _prepended(toolkit.includes, environment.get("CPATH"))
    if toolkit.runtime is not None and Path(toolkit.runtime) != home / "lib64" / "libcudart.so":
        changed["LIBRARY_PATH"] = _prepended(str(links), environment.get("LIBRARY_PATH"))
    return changed


def target_list(capabilities: Collection[Version], nvcc: Version | None) -> str:
    """FlashInfer's list of target architectures for the GPUs present, as its environment variable spells it."""
    return " ".join(_target(capability, nvcc) for capability in sorted(capabilities))


def install_toolkit() -> str:
    """A command that brings a complete toolkit into this Python environment."""
    return (
        "pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' "
        "'nvidia-nvvm==13.0.*' 'nvidia-cuda-cccl==13.0.*' nvidia-curand"
    )


def install_headers(toolkit: Toolkit, headers: Collection[str]) -> str:
    """A command that brings ``headers`` into ``toolkit``, by the way it was installed."""
    packages = list(dict.fromkeys(HEADER_PACKAGES[header] for header in headers))
    if _from_pip(toolkit):
        return "pip install " + " ".join(_pinned(pip, toolkit) for pip, _, _ in packages)
    if toolkit.source == "conda":
        return "conda install -c nvidia " + " ".join(conda for _, _, conda in packages)
    major, minor = toolkit.nvcc or (13, 0)
    return "sudo apt-get install " + " ".join(f"{apt}-{major}-{minor}" for _, apt, _ in packages)


def align(toolkit: Toolkit) -> str:
    """A command that brings compiler and headers of ``toolkit`` to one release.

    In a pip environment the headers' release stays, since PyTorch pins that package.
    """
    major, minor = (toolkit.headers if _from_pip(toolkit) else toolkit.nvcc) or (13, 0)
    if _from_pip(toolkit):
        parts = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl")
        return "pip install " + " ".join(f"'{part}=={major}.{minor}.*'" for part in parts)
    if toolkit.source == "conda":
        return f"conda install -c nvidia cuda-nvcc={major}.{minor} cuda-cudart-dev={major}.{minor}"
    return f"sudo apt-get install --reinstall cuda-nvcc-{major}-{minor} cuda-cudart-dev-{major}-{minor}"


def text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _from_pip(toolkit: Toolkit) -> bool:
    """Also where PATH or CUDA_HOME led to it."""
    return toolkit.source == "pip" or toolkit.home.endswith("/nvidia/cu13")


def _problems(toolkit: Toolkit, capabilities: Collection[Version]) -> dict[str, Problem]:
    found = {use: toolkit_problem(toolkit, capabilities, use) for use in USES}
    return {use: problem for use, problem in found.items() if problem is not None}


def _target(capability: Version, nvcc: Version | None) -> str:
    if capability[0] < 9:
        return text(capability)
    family = capability == (12, 0) and nvcc is not None and nvcc >= FAMILY_TARGET_NVCC
    return text(capability) + ("f" if family else "a")


def _pinned(package: str, toolkit: Toolkit) -> str:
    # cuRAND and cuBLAS count their own releases.
    if toolkit.nvcc is None or package in ("nvidia-curand", "nvidia-cublas"):
        return package
    return f"'{package}=={toolkit.nvcc[0]}.{toolkit.nvcc[1]}.*'"


def _prepended(folder: str, present: str | None) -> str:
    parts = [part for part in (present or "").split(":") if part and part != folder]
    return ":".join([folder, *parts])
