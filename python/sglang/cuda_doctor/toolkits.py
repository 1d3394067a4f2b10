"""CUDA toolkits on disk: where they are, and what each one holds. Nothing here judges; see ``toolkit_rules``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOME = Path("/usr/local/cuda")
NVCC_SECONDS = 20

Version = tuple[int, int]

# Headers that code compiled at run time includes, by the package that brings them: the fork's and upstream's kernels
# and FlashInfer 0.7.2. The names are those of pip, of apt (before "-13-0") and of conda's channel "nvidia".
HEADER_PACKAGES = {
    "cuda.h": ("nvidia-cuda-runtime", "cuda-cudart-dev", "cuda-cudart-dev"),
    "cuda_runtime.h": ("nvidia-cuda-runtime", "cuda-cudart-dev", "cuda-cudart-dev"),
    "cuda_bf16.h": ("nvidia-cuda-runtime", "cuda-cudart-dev", "cuda-cudart-dev"),
    "cuda_fp16.h": ("nvidia-cuda-runtime", "cuda-cudart-dev", "cuda-cudart-dev"),
    "cuda_fp8.h": ("nvidia-cuda-runtime", "cuda-cudart-dev", "cuda-cudart-dev"),
    "crt/host_config.h": ("nvidia-cuda-crt", "cuda-crt", "cuda-crt-dev_linux-64"),
    "curand.h": ("nvidia-curand", "libcurand-dev", "libcurand-dev"),
    "curand_kernel.h": ("nvidia-curand", "libcurand-dev", "libcurand-dev"),
    "curand_philox4x32_x.h": ("nvidia-curand", "libcurand-dev", "libcurand-dev"),
    "cublasLt.h": ("nvidia-cublas", "libcublas-dev", "libcublas-dev"),
    "cublas_v2.h": ("nvidia-cublas", "libcublas-dev", "libcublas-dev"),
    "nvrtc.h": ("nvidia-cuda-nvrtc", "cuda-nvrtc-dev", "cuda-nvrtc-dev"),
}
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/*/lib", "lib/*-linux-gnu")
_INCLUDE_FOLDERS = ("include", "targets/*/include")


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit as it lies on disk.

    ``home`` has no symbolic links, so one toolkit under two spellings is one value. ``source`` is how it was found:
    "CUDA_HOME", "CUDA_PATH", "PATH", "default" (/usr/local/cuda), "pip", "conda" or "versioned" (/usr/local/cuda-X.Y).
    """

    home: str
    source: str
    nvcc: Version | None = None  # release of its compiler; None where that cannot be run
    build: str | None = None  # the compiler's full version: "13.0.88"
    problem: str | None = None  # why the compiler cannot be used
    headers: Version | None = None  # CUDART_VERSION of its cuda_runtime_api.h
    missing: tuple[str, ...] = ()  # of HEADER_PACKAGES, in that order
    includes: str | None = None  # folder of its headers
    runtime: str | None = None  # the libcudart that a program is linked with


def find_toolkits(
    environment: Mapping[str, str] = os.environ,
    default_home: Path = DEFAULT_HOME,
    packages: Iterable[Path] | None = None,
) -> list[Toolkit]:
    """Every toolkit, each once: what the user named, then in the order in which JIT compilers look, then the others.

    ``packages`` are folders of installed Python packages; by default those of this interpreter.
    """
    found: dict[str, Toolkit] = {}
    for home, source in _homes(environment, default_home, _site_packages() if packages is None else packages):
        named = source in ("CUDA_HOME", "CUDA_PATH")
        real = os.path.realpath(home)
        # A folder that the user named is reported also where it holds no toolkit at all.
        if real not in found and (named or os.path.isfile(os.path.join(real, "bin", "nvcc"))):
            found[real] = read_toolkit(home, source)
    return list(found.values())


def named_home(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The toolkit folder that the user named, and the variable; None where neither is set."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(variable):
            return environment[variable], variable
    return None


def read_toolkit(home: Path | str, source: str = "CUDA_HOME") -> Toolkit:
    """The toolkit at ``home``; what keeps its compiler from running is told in ``problem``."""
    root = Path(os.path.realpath(home))
    nvcc, build, problem = _compiler(root / "bin" / "nvcc")
    includes = _folder_with(root, _INCLUDE_FOLDERS, "cuda_runtime_api.h")
    return Toolkit(
        home=str(root),
        source=source,
        nvcc=nvcc,
        build=build,
        problem=problem,
        headers=_header_version(includes),
        missing=tuple(header for header in HEADER_PACKAGES if not _has_header(root, header)),
        includes=str(includes) if includes else None,
        runtime=_runtime_library(root),
    )


def _homes(environment: Mapping[str, str], default_home: Path, packages: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(variable):
            yield Path(environment[variable]), variable
    on_path = shutil.which("nvcc", path=environment.get("PATH", ""))
    if on_path:
        yield Path(os.path.realpath(on_path)).parent.parent, "PATH"
    yield default_home, "default"
    for folder in packages:
        yield folder / "nvidia" / "cu13", "pip"
    for prefix in (environment.get("CONDA_PREFIX"), sys.prefix):
        if prefix and (Path(prefix) / "conda-meta").is_dir():
            yield Path(prefix), "conda"
    by_version = sorted(default_home.parent.glob("cuda-*"), key=lambda home: _numbers(home.name), reverse=True)
    for home in by_version:
        yield home, "versioned"


def _site_packages() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(folder) for folder in dict.fromkeys([paths["purelib"], paths["platlib"], *sys.path]) if folder]


def _compiler(nvcc: Path) -> tuple[Version | None, str | None, str | None]:
    """Release, full version and problem of a compiler."""
    if not nvcc.is_file():
        return None, None, f"there is no {nvcc}"
    try:
        output = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=NVCC_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return None, None, f"{nvcc} cannot be run ({type(error).__name__})"
    release = re.search(r"release (\d+)\.(\d+)(?:, V([\d.]+))?", output)
    if release is None:
        return None, None, f"{nvcc} does not tell its release"
    return (int(release[1]), int(release[2])), release[3], None


def _header_version(includes: Path | None) -> Version | None:
    if includes is None:
        return None
    try:
        text = (includes / "cuda_runtime_api.h").read_text(errors="replace")
    except OSError:
        return None
    version = re.search(r"^#\s*define\s+CUDART_VERSION\s+(\d+)", text, re.MULTILINE)
    return (int(version[1]) // 1000, int(version[1]) % 1000 // 10) if version else None


def _folder_with(root: Path, folders: Iterable[str], file: str) -> Path | None:
    return next(
        (place for pattern in folders for place in sorted(root.glob(pattern)) if (place / file).is_file()), None
    )


def _has_header(root: Path, header: str) -> bool:
    return _folder_with(root, _INCLUDE_FOLDERS, header) is not None


def _runtime_library(root: Path) -> str | None:
    """libcudart.so, or where only the versioned name exists, as in pip's packages, that one."""
    for name in ("libcudart.so", "libcudart.so.*"):
        for pattern in _LIBRARY_FOLDERS:
            for folder in sorted(root.glob(pattern)):
                libraries = sorted(folder.glob(name), key=lambda library: _numbers(library.name))
                if libraries:
                    return str(libraries[-1])
    return None


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]
