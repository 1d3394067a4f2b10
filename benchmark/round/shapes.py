"""Model shapes: the numbers of their config.json, from the models' published files; weights are random."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK_SIZE = 16
"""Positions of a draft pass: deep enough for trees of 255 nodes."""
_DRAFT_LAYERS = 1
LEAST_LAYERS = 3
"""The draft reads two layers, and what the last one hands on is read by nobody."""
_CAPTURED_LAYERS = [0, 1]
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
_ROPE = {"rope_theta": 1_000_000.0}

_QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    **_ROPE,
}
_QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    **_ROPE,
}
# The text model of Kimi K2.6, in bfloat16: its INT4 experts are about a quarter of these bytes. Cut to four layers, one
# of them dense: 109 GB of weights, so that it fits one GPU of 141 GB.
_KIMI_K26 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 163840,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 50000.0,
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
_TINY = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    **_ROPE,
}
_TINY_MOE = {
    **_TINY,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_TINY_MLA = {
    **_KIMI_K26,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "q_lora_rank": 32,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 32,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
_SHARED = {"rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False, "dtype": "bfloat16", **_TOKENS}


@dataclass(frozen=True)
class Shape:
    """One target: ``config`` is its config.json, ``layers_of_model`` the layers of the whole model."""

    name: str
    config: dict[str, Any]
    layers_of_model: int

    @property
    def layers(self) -> int:
        return self.config["num_hidden_layers"]

    def cut(self, layers: int) -> "Shape":
        """The same shape with fewer layers."""
        return Shape(self.name, {**self.config, "num_hidden_layers": layers}, self.layers_of_model)


def _shape(name: str, config: dict[str, Any], layers: int | None = None) -> Shape:
    whole = Shape(name, {**config, **_SHARED}, config["num_hidden_layers"])
    return whole.cut(layers) if layers else whole


SHAPES = {
    shape.name: shape
    for shape in (
        _shape("qwen3-8b", _QWEN3_8B),
        _shape("qwen3-30b-a3b", _QWEN3_30B_A3B),
        _shape("kimi-k2.6", _KIMI_K26, layers=4),
        _shape("tiny", _TINY),
        _shape("tiny-moe", _TINY_MOE),
        _shape("tiny-mla", _TINY_MLA),
    )
}


def write_pair(shape: Shape, folder: Path) -> tuple[Path, Path]:
    """Writes the configurations of target and draft below ``folder`` and returns their folders.

    The draft has one layer, the target's hidden size and a small feed-forward part: it is there to fill trees.
    """
    target, draft = folder / "target", folder / "draft"
    _write(target, shape.config)
    hidden = shape.config["hidden_size"]
    head = min(128, hidden // 4)
    _write(
        draft,
        {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "hidden_size": hidden,
            "intermediate_size": hidden,
            "num_hidden_layers": _DRAFT_LAYERS,
            "layer_types": ["full_attention"] * _DRAFT_LAYERS,
            "num_attention_heads": 8 if head >= 64 else 4,
            "num_key_value_heads": 8 if head >= 64 else 4,
            "head_dim": head,
            "vocab_size": shape.config["vocab_size"],
            "max_position_embeddings": shape.config["max_position_embeddings"],
            "num_target_layers": shape.layers,
            "block_size": BLOCK_SIZE,
            "dflash_config": {"target_layer_ids": _CAPTURED_LAYERS, "mask_token_id": 3},
            "tie_word_embeddings": True,
            **_ROPE,
            **_SHARED,
        },
    )
    return target, draft


def _write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
