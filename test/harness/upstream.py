"""Upstream wheels for tests: the pinned one from the cache, and small made-up releases."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.tags import Tag, sys_tags
from packaging.version import Version
from wheel.wheelfile import WheelFile

from patches.errors import PatchError
from patches.fetch import cache_folder, pinned_wheel
from patches.pin import Pin, pin_text, read_pin, sha256

REPOSITORY = Path(__file__).resolve().parents[2]
FAKE_FILES = {
    "sglang/__init__.py": "",
    "sglang/_version.py": "__version__ = '0'\n",
    "sglang/kernels/__init__.py": "",
    "sglang/srt/pool.py": "class Pool:\n    def grow(self):\n        return f(1)\n",
}
FAKE_REQUIREMENTS = ("numpy", "torch==2.14.1", "cuda-python>=13.0", 'sglang[ray]; extra == "all"')


@pytest.fixture(scope="session")
def upstream_wheel() -> Path:
    """The pinned upstream wheel for this Python, from SGLANG_UPSTREAM_WHEEL, the cache or the package index."""
    pin = read_pin()
    if given := os.environ.get("SGLANG_UPSTREAM_WHEEL"):
        pin.check(Path(given))
        return Path(given)
    try:
        return pinned_wheel(pin, pin.wheel_for())
    except PatchError as error:
        pytest.skip(f"the pinned upstream wheel is neither cached nor to be fetched: {error}")


def cached_wheels() -> list[Path]:
    """The wheels of the pin that the cache holds."""
    return [path for name in sorted(read_pin().wheels) if (path := cache_folder() / name).is_file()]


def make_wheel(
    folder: Path,
    files: Mapping[str, str] = FAKE_FILES,
    version: str = "1.0",
    requirements: tuple[str, ...] = FAKE_REQUIREMENTS,
    tag: Tag | None = None,
) -> Path:
    """A small upstream wheel of sglang `version`, for this Python unless `tag` says otherwise."""
    tag = tag or next(iter(sys_tags()))
    metadata = ["Metadata-Version: 2.4", "Name: sglang", f"Version: {version}", "License-File: LICENSE"]
    metadata += [f"Requires-Dist: {line}" for line in requirements]
    info = f"sglang-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": "\n".join([*metadata, "", "What it is: sglang — 一\n"]),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: setuptools\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nsglang = sglang.cli:main\n",
        f"{info}/licenses/LICENSE": "licence of upstream\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{version}-{tag}.whl"
    with WheelFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def make_repository(folder: Path, wheels: list[Path], version: str = "1.0") -> Path:
    """A copy of the build and the engine with an empty queue, no files of ours, and `wheels` as its pin."""
    for name in ("build_backend", "patches"):
        ignored = shutil.ignore_patterns("__pycache__", "queue", "series")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(REPOSITORY / name, folder / name)
    (folder / "patches/queue").mkdir()
    (folder / "patches/series").write_text("")
    (folder / "patches/pin.toml").write_text(
        pin_text(Pin(Version(version), {wheel.name: sha256(wheel) for wheel in wheels}))
    )
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


PYPROJECT = """
[tool.sglang-fork]
name = "sglang"
local-version = "dflash.7"
[tool.sglang-fork.overlay]
python = ""
sgl-kernel = "sglang/kernels"
[tool.sglang-fork.entry-points."sglang.srt.platforms"]
ours = "sglang.ours:activate"
[tool.sglang-fork.targets.cuda]
[tool.sglang-fork.targets.cpu.without]
cuda-python = "CUDA"
[tool.sglang-fork.targets.cpu.with]
"torch>=2.13,<2.15" = "CPU builds"
"""
