"""A tiny random target in the layout of Kimi K2.5 and K2.6: a DeepSeek V3 inside a wrapper with a vision tower."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_WIDTH, _MLP, _PATCH, _GRID, _MERGED = 16, 32, 2, 4, (2, 2)  # of the vision tower: one layer
_TEXT_PREFIX = "language_model."


def wrap_in_kimi(text_config: dict, folder: Path, generator: torch.Generator) -> dict:
    """Turn the DeepSeek V3 whose weights are in ``folder`` into a Kimi K2.5, and return the config of the whole."""
    path = folder / "model.safetensors"
    text = {_TEXT_PREFIX + name: weight for name, weight in load_file(path).items()}
    hidden = text_config["hidden_size"]
    save_file({**text, **_vision_weights(hidden, generator)}, path, metadata={"format": "pt"})
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "dtype": text_config["dtype"],
        "tie_word_embeddings": text_config["tie_word_embeddings"],
        # Text alone: no image processor, which would need torchvision, and no image in the warm-up.
        "language_model_only": True,
        "text_config": {**text_config, "model_type": "kimi_k2"},
        "vision_config": _vision_config(hidden),
    }


def _vision_config(text_hidden: int) -> dict:
    sizes = {"hidden_size": _WIDTH, "intermediate_size": _MLP, "num_attention_heads": 2, "num_hidden_layers": 1}
    released = {f"vt_{name}": size for name, size in sizes.items()}  # names of which the projector reads one
    return {
        **sizes,
        **released,
        "patch_size": _PATCH,
        "init_pos_emb_height": _GRID,
        "init_pos_emb_width": _GRID,
        "merge_kernel_size": list(_MERGED),
        "text_hidden_size": text_hidden,
    }


def _vision_weights(text_hidden: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    block, merged = "vision_tower.encoder.blocks.0", _WIDTH * _MERGED[0] * _MERGED[1]
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
