"""A tiny random target in the layout of Kimi K2.5 and K2.6: a DeepSeek V3 inside a wrapper with a vision tower.

Every picture is one token of its prompt, whatever its size: the checkpoint's own processor, as in the released ones,
brings it to four patches, and the projector makes one row of them.
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers.processing_utils import ProcessorMixin

from .tiny_tokenizer import UNK_ID

# What a server of this target needs: the checkpoint's processor is code, and the warm-up's chat would have a picture,
# for which the tiny chat template has no place.
KIMI_FLAGS = {"trust_remote_code": True, "skip_server_warmup": True}

_PICTURE_ID = UNK_ID  # stands where a picture is; no prompt of the harness has it
_WIDTH, _MLP, _PATCH, _GRID = 16, 32, 2, 2  # of the vision tower, which has one layer


class TinyKimiProcessor(ProcessorMixin):
    """What upstream asks of the processor in a Kimi checkpoint."""

    image_processor = None  # upstream cuts pictures itself on a GPU, and calls this class elsewhere

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.media_processor = self
        self.media_proc_cfg = {
            "patch_size": _PATCH,
            "merge_kernel_size": _GRID,
            "in_patch_limit": _GRID**2,
            "patch_limit_on_one_side": _GRID,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        }

    @classmethod
    def from_pretrained(cls, folder: str, **_: Any) -> "TinyKimiProcessor":
        return cls(AutoTokenizer.from_pretrained(folder))

    def media_tokens_calculator(self, medium: dict) -> int:
        return 1

    def __call__(self, text: list[str], medias: list[dict] = (), **_: Any) -> dict:
        encoded = {"input_ids": self.tokenizer(text, return_tensors="pt")["input_ids"]}
        if medias:
            encoded["pixel_values"] = torch.cat([_patches(medium["image"]) for medium in medias])
            encoded["grid_thws"] = torch.tensor([[1, _GRID, _GRID]] * len(medias))
        return encoded


def with_picture(request: dict, seed: int) -> dict:
    """``request`` of ``Server.generate`` with a random picture behind its first token."""
    pixels = np.random.default_rng(seed).integers(0, 256, (_GRID * _PATCH, _GRID * _PATCH, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    first, *rest = request["input_ids"]
    return {**request, "input_ids": [first, _PICTURE_ID, *rest], "image_data": [picture]}


def wrap_in_kimi(text_config: dict, folder: Path, generator: torch.Generator) -> dict:
    """Turn the DeepSeek V3 whose weights are in ``folder`` into a Kimi K2.5, and return the config of the whole."""
    path, hidden = folder / "model.safetensors", text_config["hidden_size"]
    text = {f"language_model.{name}": weight for name, weight in load_file(path).items()}
    save_file({**text, **_vision_weights(hidden, generator)}, path, metadata={"format": "pt"})
    processor = f"processor.{TinyKimiProcessor.__name__}"
    (folder / "processor_config.json").write_text(json.dumps({"auto_map": {"AutoProcessor": processor}}))
    (folder / "processor.py").write_text(f"from {__name__} import {TinyKimiProcessor.__name__}\n")
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "dtype": text_config["dtype"],
        "tie_word_embeddings": text_config["tie_word_embeddings"],
        "media_placeholder_token_id": _PICTURE_ID,
        "text_config": {**text_config, "model_type": "kimi_k2"},
        "vision_config": _vision_config(hidden),
    }


def _patches(picture: Image.Image) -> torch.Tensor:
    """[patches, 3, rows, columns] float32, from -1 to 1."""
    pixels = np.asarray(picture.convert("RGB").resize((_GRID * _PATCH, _GRID * _PATCH)), dtype=np.float32)
    patches = pixels.reshape(_GRID, _PATCH, _GRID, _PATCH, 3).transpose(0, 2, 4, 1, 3) / 127.5 - 1
    return torch.from_numpy(patches.reshape(_GRID**2, 3, _PATCH, _PATCH))


def _vision_config(text_hidden: int) -> dict:
    sizes = {"hidden_size": _WIDTH, "intermediate_size": _MLP, "num_attention_heads": 2, "num_hidden_layers": 1}
    released = {f"vt_{name}": size for name, size in sizes.items()}  # names of which the projector reads one
    return {
        **sizes,
        **released,
        "patch_size": _PATCH,
        "init_pos_emb_height": _GRID,
        "init_pos_emb_width": _GRID,
        "merge_kernel_size": [_GRID, _GRID],
        "text_hidden_size": text_hidden,
    }


def _vision_weights(text_hidden: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    block, merged = "vision_tower.encoder.blocks.0", _WIDTH * _GRID**2
    shapes = {
        "vision_tower.patch_embed.proj": (_WIDTH, 3, _PATCH, _PATCH),
        f"{block}.norm0": (_WIDTH,),
        f"{block}.norm1": (_WIDTH,),
        f"{block}.wqkv": (3 * _WIDTH, _WIDTH),
        f"{block}.wo": (_WIDTH, _WIDTH),
        f"{block}.mlp.fc0": (_MLP, _WIDTH),
        f"{block}.mlp.fc1": (_WIDTH, _MLP),
        "vision_tower.encoder.final_layernorm": (_WIDTH,),
        "mm_projector.pre_norm": (_WIDTH,),
        "mm_projector.proj.0": (merged, merged),
        "mm_projector.proj.2": (text_hidden, merged),
    }
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in shapes.items()}
    weights["vision_tower.patch_embed.pos_emb.weight"] = torch.randn(_GRID, _GRID, _WIDTH, generator=generator)
    return weights
