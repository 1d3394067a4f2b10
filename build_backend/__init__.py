"""The build of the fork: PEP 517 hooks that make one wheel of the pinned release, the patch queue and our files.

    settings.py   [tool.sglang-fork] of pyproject.toml
    assemble.py   upstream wheel -> the fork's tree
    metadata.py   upstream's dist-info -> ours
    archive.py    tree -> wheel file, the same bytes for the same inputs

SGLANG_TARGET_DEVICE is `cuda` (default: upstream's requirements) or `cpu` (no CUDA package).
SGLANG_UPSTREAM_WHEEL names a file to build from, with no network; its hash is checked like that of a fetched one.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from build_backend.archive import pack
from build_backend.assemble import assemble, assemble_dist_info
from build_backend.settings import read_settings
from patches.errors import PatchError
from patches.fetch import pinned_wheel
from patches.pin import read_pin


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """PEP 517: writes the wheel to `wheel_directory` and returns its file name."""
    return _one_line_errors(lambda: build(Path(wheel_directory), *_environment()).name)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None) -> str:
    """PEP 517: writes the wheel's dist-info without building the rest, and returns the folder's name."""

    def prepare() -> str:
        wheel, device = _environment()
        return assemble_dist_info(wheel, Path(metadata_directory), device).name

    return _one_line_errors(prepare)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """PEP 660: refused, since an installed fork is made of edited upstream files that are not in this repository."""
    sys.exit(
        "error: an editable install was asked for, but the fork's files are made at build time; "
        "run `pip install .`, or `python -m patches tree FOLDER` and set PYTHONPATH to the folder"
    )


prepare_metadata_for_build_editable = build_editable


def build_sdist(sdist_directory, config_settings=None) -> str:
    """PEP 517: refused; the repository itself is the source form."""
    sys.exit("error: a source distribution was asked for, which the fork does not have; use a clone of the repository")


def build(folder: Path, wheel: Path, device: str) -> Path:
    """Builds the fork from the pinned upstream `wheel`, of any Python and machine, into `folder`."""
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as temporary:
        assemble(wheel, Path(temporary), device)
        return pack(Path(temporary), folder)


def _environment() -> tuple[Path, str]:
    """The upstream wheel and the target device that the environment variables ask for."""
    device = os.environ.get("SGLANG_TARGET_DEVICE") or "cuda"
    given = os.environ.get("SGLANG_UPSTREAM_WHEEL")
    read_settings().target(device)  # refuses an unknown one before anything is fetched
    pin = read_pin()
    expected = pin.wheel_for()
    if not given:
        return pinned_wheel(pin, expected), device
    wheel = Path(given).expanduser()
    if pin.check(wheel) != expected:
        raise PatchError("SGLANG_UPSTREAM_WHEEL", f"{wheel} is {pin.check(wheel)}", f"this Python needs {expected}")
    return wheel, device


def _one_line_errors(work: Callable[[], str]) -> str:
    try:
        return work()
    except PatchError as error:
        sys.exit(f"error: {error}")
