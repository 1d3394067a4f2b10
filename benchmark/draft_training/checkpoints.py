"""A run's state on disk, written atomically, and the draft as a checkpoint that engines read (z-lab layout)."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .draft import DraftConfig, DraftModel

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
CAPTURED_LAYERS = 5


def draft_json(
    target: Path, *, layers: int, block_size: int, mask_token: int, intermediate_size: int | None = None
) -> dict[str, Any]:
    """Returns the config.json of a new draft: the target's shapes, five captured layers spread over its depth."""
    config = json.loads((target / CONFIG_NAME).read_text())
    depth = config["num_hidden_layers"]
    step = (depth - 4) / (CAPTURED_LAYERS - 1)  # the first is layer 1, the last is the fourth from the end, minus one
    captured = [int(1 + step * number + 0.5) for number in range(CAPTURED_LAYERS)]
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": config["hidden_size"],
        "intermediate_size": intermediate_size or config["intermediate_size"],
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-5,
        "vocab_size": config["vocab_size"],
        "max_position_embeddings": config["max_position_embeddings"],
        "rope_theta": rope.get("rope_theta") or config.get("rope_theta", 10000.0),
        "block_size": block_size,
        "num_target_layers": depth,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "dtype": "bfloat16",
        "dflash_config": {"target_layer_ids": captured, "mask_token_id": mask_token},
        "layer_types": ["full_attention"] * layers,
        "bos_token_id": config.get("bos_token_id"),
        "eos_token_id": config.get("eos_token_id"),
    }


def read_draft(folder: Path) -> tuple[DraftModel, dict[str, Any]]:
    """Returns the draft in ``folder`` in float32 and its config.json. Raises RuntimeError where a weight is missing."""
    config = json.loads((folder / CONFIG_NAME).read_text())
    model = DraftModel(DraftConfig.from_json(config))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / WEIGHTS_NAME).items()})
    return model, config


def write_draft(folder: Path, weights: dict[str, Tensor], config: dict[str, Any]) -> None:
    """Writes bfloat16 ``weights`` and ``config`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=1) + "\n")


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Writes ``state`` so that ``path`` always holds a whole state, whenever the process is killed."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_state(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Returns what ``save_state`` wrote, on ``device``, or None where there is nothing yet."""
    return torch.load(path, map_location=device, weights_only=True) if path.is_file() else None
