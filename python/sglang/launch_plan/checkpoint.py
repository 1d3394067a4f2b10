"""Names and bytes of a checkpoint's tensors, from the headers of its safetensors files; no tensor is read."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

# The headers of the largest checkpoints are a few megabytes; a longer one is no safetensors file.
_LONGEST_HEADER = 100 << 20


@dataclass(frozen=True)
class Tensor:
    """One stored tensor."""

    name: str
    shape: tuple[int, ...]
    bytes: int


def read_tensors(model: str, *, network: bool) -> list[Tensor] | None:
    """Returns the tensors of a folder or, where ``network`` is allowed, of a hub name; None where they cannot be known.

    Files in other formats than safetensors are not read.
    """
    folder = Path(model)
    if folder.is_dir():
        files = sorted(folder.glob("*.safetensors"))
        return [tensor for file in files for tensor in _read_header(file)] or None
    return _from_hub(model) if network else None


def _read_header(file: Path) -> list[Tensor]:
    """By the format's description: eight bytes of length, little-endian, then JSON. Raises ValueError for another."""
    with file.open("rb") as content:
        start = content.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= _LONGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file: copy it again")
        header = json.loads(content.read(length))
    return [
        Tensor(name, tuple(entry["shape"]), entry["data_offsets"][1] - entry["data_offsets"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    ]


def _from_hub(model: str) -> list[Tensor] | None:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, NotASafetensorsRepoError

    try:
        metadata = huggingface_hub.get_safetensors_metadata(model)
    except (HfHubHTTPError, NotASafetensorsRepoError, OSError, ValueError):
        return None
    return [
        Tensor(name, tuple(info.shape), info.data_offsets[1] - info.data_offsets[0])
        for file in metadata.files_metadata.values()
        for name, info in file.tensors.items()
    ]
