"""The fork without some of its patches: where a test of a defect must fail."""

import zipfile
from pathlib import Path

from build_backend.assemble import write_tree
from patches.apply import patch_sources
from patches.pin import read_pin
from patches.series import load_series


def write_unfixed_tree(folder: Path, wheel: Path, without: set[str]) -> Path:
    """Write the tree of the fork, for PYTHONPATH, as it would be without the patches named in `without`."""
    queue = load_series()
    unknown = without - {patch.name for patch in queue}
    if unknown:
        raise ValueError(f"no such patches: {sorted(unknown)}")
    write_tree(wheel, folder, "cpu")
    kept = [patch for patch in queue if patch.name not in without]
    with zipfile.ZipFile(wheel) as pristine:
        names = set(pristine.namelist())
        patched = patch_sources(kept, read_pin().version, lambda file: pristine.read(file) if file in names else None)
        for file in {file for patch in queue if patch.name in without for file in patch.files}:
            (folder / file).write_bytes(patched.get(file) or pristine.read(file))
    return folder
