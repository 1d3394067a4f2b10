"""A DFLASH draft stored as int8, so that it fits in a repository and a wheel, and expanded again before serving.

Every matrix is cut along its rows into groups of 32 weights; a group keeps one bfloat16 scale and 32 signed bytes:

    scale = max(abs(group)) / 127        stored = round(group / scale)        weight = stored * scale

Vectors (norms) stay in bfloat16. ``pack_draft`` measures what that costs and writes it into the file's metadata.
"""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from .errors import PairError

FORMAT = "dflash-int8-groups-1"
GROUP_SIZE = 32
PACKED_NAME = "packed.safetensors"
CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"

_SCALE_SUFFIX = ".scale"
_LARGEST = 127
_SMALLEST_SCALE = torch.finfo(torch.bfloat16).smallest_normal  # a group of zeros


@dataclass(frozen=True)
class PackedSize:
    """What packing gave: bytes on disk, and the error it costs.

    ``relative_error`` is the root of the summed squared differences over the root of the summed squared weights, of all
    matrices after rounding back to bfloat16; ``largest_relative_error`` is that of the worst matrix.
    """

    bytes: int
    relative_error: float
    largest_relative_error: float


def pack_draft(checkpoint: Path, packed: Path) -> PackedSize:
    """Writes the z-lab checkpoint folder ``checkpoint`` (bfloat16) into the folder ``packed``.

    ``packed`` gets config.json as it is and packed.safetensors. Raises PairError if ``checkpoint`` is no DFLASH draft.
    """
    config = json.loads(_required(checkpoint / CONFIG_NAME).read_text())
    if "dflash_config" not in config:
        raise PairError(f"{checkpoint / CONFIG_NAME} has no dflash_config: not a DFLASH draft in the z-lab layout")
    tensors = load_file(_required(checkpoint / WEIGHTS_NAME))
    stored: dict[str, torch.Tensor] = {}
    errors: dict[str, tuple[float, float]] = {}
    for name, weight in tensors.items():
        if weight.dim() != 2:
            stored[name] = weight.to(torch.bfloat16)
            continue
        stored[name], stored[name + _SCALE_SUFFIX] = quantize(weight)
        difference = dequantize(stored[name], stored[name + _SCALE_SUFFIX]).double() - weight.double()
        errors[name] = difference.square().sum().item(), weight.double().square().sum().item()
    error = _relative(sum(part[0] for part in errors.values()), sum(part[1] for part in errors.values()))
    largest = max(_relative(*part) for part in errors.values())

    packed.mkdir(parents=True, exist_ok=True)
    metadata = {"format": FORMAT, "relative_error": f"{error:.6f}", "largest_relative_error": f"{largest:.6f}"}
    partial = packed / f".{PACKED_NAME}.partial"
    save_file(stored, partial, metadata=metadata)
    partial.chmod(0o644)  # safetensors makes its files private
    partial.replace(packed / PACKED_NAME)
    shutil.copyfile(checkpoint / CONFIG_NAME, packed / CONFIG_NAME)
    return PackedSize((packed / PACKED_NAME).stat().st_size, error, largest)


def unpack_draft(packed: Path, checkpoint: Path) -> None:
    """Expands the folder ``packed`` into the existing folder ``checkpoint``: config.json, bfloat16 model.safetensors.

    Raises PairError if a file is missing or of another format.
    """
    source = _required(packed / PACKED_NAME)
    with safe_open(source, "pt") as file:
        found = (file.metadata() or {}).get("format")
    if found != FORMAT:
        raise PairError(f"{source} has the format {found!r}, this release reads {FORMAT!r}: pack the draft again")
    stored = load_file(source)
    tensors = {}
    for name, weight in stored.items():
        if name.endswith(_SCALE_SUFFIX):
            continue
        scale = stored.get(name + _SCALE_SUFFIX)
        tensors[name] = weight if scale is None else dequantize(weight, scale)
    save_file(tensors, checkpoint / WEIGHTS_NAME, metadata={"format": "pt"})
    shutil.copyfile(_required(packed / CONFIG_NAME), checkpoint / CONFIG_NAME)


def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns int8 weights [rows, columns] and bfloat16 scales [rows, groups] of a matrix [rows, columns].

    Where ``columns`` is not a multiple of 32, a row is one group.
    """
    rows, columns = weight.shape
    size = GROUP_SIZE if columns % GROUP_SIZE == 0 else columns
    groups = weight.float().reshape(rows, columns // size, size)
    scale = (groups.abs().amax(dim=-1, keepdim=True) / _LARGEST).clamp(min=_SMALLEST_SCALE).bfloat16()
    # a scale that bfloat16 rounded down is too small for the group's largest weight, hence the clamp
    stored = (groups / scale.float()).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
    return stored.reshape(rows, columns), scale.squeeze(-1)


def dequantize(stored: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns the bfloat16 matrix [rows, columns] of what ``quantize`` gave."""
    rows, columns = stored.shape
    groups = stored.float().reshape(rows, scale.shape[1], -1) * scale.float().unsqueeze(-1)
    return groups.reshape(rows, columns).to(torch.bfloat16)


def _relative(squared_difference: float, squared_weight: float) -> float:
    return math.sqrt(squared_difference / squared_weight) if squared_weight else 0.0


def _required(path: Path) -> Path:
    if not path.is_file():
        raise PairError(f"{path} is missing")
    return path
