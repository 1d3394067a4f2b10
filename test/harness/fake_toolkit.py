"""CUDA toolkits as folders with a small nvcc script and empty headers."""

from collections.abc import Collection
from pathlib import Path

from sglang.cuda_doctor.toolkits import HEADER_PACKAGES

CURAND = ("curand.h", "curand_kernel.h", "curand_philox4x32_x.h")


def make_toolkit(
    home: Path,
    release: str | None = "13.0",
    *,
    headers: str | None = "same",
    without: Collection[str] = (),
    libraries: str | None = "lib64",
    versioned: bool = False,
    includes: str = "include",
    exits: int = 0,
) -> Path:
    """A toolkit whose nvcc prints ``release`` (None: something else) and exits with ``exits``; returns ``home``.

    ``headers`` is the release of its headers ("same" as nvcc's; None: it has none), ``without`` names headers to leave
    out, ``libraries`` is the folder of libcudart (None: no library), ``versioned`` leaves only its versioned name, as
    pip's packages do.
    """
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    line = f"Cuda compilation tools, release {release}, V{release}.88" if release else "hello"
    nvcc.write_text(f"#!/bin/sh\necho '{line}'\nexit {exits}\n")
    nvcc.chmod(0o755)
    if headers is not None:
        folder = home / includes
        (folder / "crt").mkdir(parents=True)
        for header in HEADER_PACKAGES:
            if header not in without:
                (folder / header).touch()
        major, minor = ((release or "13.0") if headers == "same" else headers).split(".")
        text = f"#define CUDART_VERSION  {int(major) * 1000 + int(minor) * 10}\n"
        (folder / "cuda_runtime_api.h").write_text(text)
    if libraries is not None:
        (home / libraries).mkdir(parents=True, exist_ok=True)
        major = (release or "13.0").partition(".")[0]
        library = home / libraries / f"libcudart.so.{major}"
        library.touch()
        if not versioned:
            (library.parent / "libcudart.so").symlink_to(library.name)
    return home
