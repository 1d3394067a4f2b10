"""Packs the fork's tree into a wheel file; the same tree gives the same bytes."""

import os
import tempfile
from email import message_from_bytes
from pathlib import Path
from unittest import mock

from wheel.wheelfile import WheelFile

from build_backend.metadata import dist_info_of

EPOCH = "315532800"  # 1980-01-01, the first moment that a zip archive can name


def pack(tree: Path, folder: Path) -> Path:
    """Writes the wheel of `tree` to `folder`, with a new RECORD, and returns its path."""
    dist_info = dist_info_of(tree)
    tags = message_from_bytes((dist_info / "WHEEL").read_bytes()).get_all("Tag")
    parts = [sorted(set(column)) for column in zip(*(tag.split("-") for tag in tags), strict=True)]
    stem = dist_info.name.removesuffix(".dist-info")
    name = "-".join([stem, *(".".join(values) for values in parts)]) + ".whl"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".pack-") as temporary:
        unfinished = Path(temporary) / name
        epoch = os.environ.get("SOURCE_DATE_EPOCH", EPOCH)
        with mock.patch.dict(os.environ, SOURCE_DATE_EPOCH=epoch), WheelFile(unfinished, "w") as archive:
            archive.write_files(tree)
        os.replace(unfinished, folder / name)
    return folder / name
