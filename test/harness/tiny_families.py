"""Tiny random targets of families that differ from Llama by more than norms: experts, latent attention, a wrapper.

Transformers builds and saves them, so that the layout of the checkpoint is the family's own and not this harness's.
"""

from pathlib import Path

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from .tiny_kimi import wrap_in_kimi

_EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
# Latent attention keeps one compressed row per token and a rotary part; the first layer is dense, the others have a
# shared expert and choose among two groups, by sigmoid scores and a bias that decides the choice alone. Upstream's
# triton kernels split keys of 256 + 32 or 512 + 64 into the two parts, and no others.
_LATENT_ATTENTION = {
    "q_lora_rank": 24,
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 32,
    "head_dim": 32,  # the rotary part, to transformers
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
_GROUPS = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}

# As in the released checkpoints; upstream's CPU code knows no DeepSeek without it.
_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "beta_fast": 32,
    "beta_slow": 1,
}

# What the config of a released checkpoint says and transformers' config class leaves out.
_DEEPSEEK_ROUTING = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1}
_ROUTER_GAIN = 3.0  # far apart, so that no expert is chosen by a rounding error


def save_family(architecture: str, config: dict, folder: Path, generator: torch.Generator) -> dict:
    """Write the weights of a random ``architecture`` with the sizes of ``config`` and return its config."""
    if architecture == "qwen3_moe":
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**config, **_EXPERTS, num_experts=8, decoder_sparse_step=1))
        more = {}
    else:
        heads = {"num_key_value_heads": config["num_attention_heads"]}
        model = DeepseekV3ForCausalLM(
            DeepseekV3Config(**{**config, **heads, **_LATENT_ATTENTION, "rope_scaling": _YARN}, **_EXPERTS, **_GROUPS)
        )
        more = _DEEPSEEK_ROUTING
    _randomize(model, generator)
    model.save_pretrained(folder)
    saved = {**model.config.to_dict(), "architectures": [type(model).__name__], **more}
    return wrap_in_kimi(saved, folder, generator) if architecture == "kimi_k25" else saved


@torch.no_grad()
def _randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Fill every weight in place: norms with a constant, the others with a standard deviation that keeps a spread."""
    weights = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias"))]
    for name, weight in weights:
        if "norm" in name:
            weight.fill_(3.0 if "q_norm" in name or "k_norm" in name else 1.0)
            continue
        scale = 2.0 / weight.shape[-1] ** 0.5
        if "embed_tokens" in name or "lm_head" in name:
            scale = 0.4
        elif name.endswith("mlp.gate.weight"):
            scale *= _ROUTER_GAIN / 2
        weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
