"""The fork without some of its patches: where a test of a defect must fail."""

import os
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

from patches.apply import patch_sources
from patches.pin import read_pin
from patches.series import load_series


def write_unfixed_tree(folder: Path, wheel: Path, without: set[str]) -> Path:
    """Write the fork under test, for PYTHONPATH, as it would be without the patches named in `without`.

    Only the files that those patches touch are written; the rest is linked, byte code included, since compiling a
    whole tree takes longer than the test that needs it.
    """
    queue = load_series()
    unknown = without - {patch.name for patch in queue}
    if unknown:
        raise ValueError(f"no such patches: {sorted(unknown)}")
    unfixed = {file for patch in queue if patch.name in without for file in patch.files}
    kept = [patch for patch in queue if patch.name not in without and unfixed.intersection(patch.files)]
    _link_installed_fork(folder)
    with zipfile.ZipFile(wheel) as pristine:
        names = set(pristine.namelist())
        patched = patch_sources(kept, read_pin().version, lambda file: pristine.read(file) if file in names else None)
        for file in unfixed:
            (folder / file).unlink()  # another name of the installed file
            (folder / file).write_bytes(patched.get(file) or pristine.read(file))
    return folder


def _link_installed_fork(folder: Path) -> None:
    site = Path(find_spec("sglang").origin).parents[1]
    for part in (site / "sglang", *site.glob("sglang-*.dist-info")):
        shutil.copytree(part, folder / part.name, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
