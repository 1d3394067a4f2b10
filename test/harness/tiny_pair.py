"""A tiny random target and DFLASH draft, the same on every machine for one seed.

The target has four layers, hidden size 64, 128 tokens, 512 positions, float32; the draft follows the z-lab layout. Both
are random, so the draft is almost always wrong: what the pair proves is that verification keeps the target's output,
and plain greedy decoding of the target is the oracle. The weights are scaled well above a trained model's, so that
greedy output depends on the whole prefix and does not settle on one token.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file

from .tiny_tokenizer import BOS_ID, EOS_ID, MASK_ID, VOCAB_SIZE, build_tiny_tokenizer

Architecture = Literal["llama", "qwen3", "qwen3_moe", "deepseek_v3", "kimi_k25"]

HIDDEN_SIZE = 64
INTERMEDIATE_SIZE = 128
NUM_TARGET_LAYERS = 4
NUM_HEADS = 4
NUM_KV_HEADS = 2
HEAD_DIM = HIDDEN_SIZE // NUM_HEADS
MAX_POSITIONS = 512
CAPTURED_LAYERS = (0, 2)  # not the last: upstream captures what a layer receives, and nothing behind the last receives
ROPE_THETA = 10000.0

# Standard deviation of the embedding (and of the output head). Small, so that the layers and not the last token's own
# embedding decide what comes next; tied, a large one would repeat the last token.
_EMBEDDING_SCALE = 0.4
# Gain over 1/sqrt(fan_in): sharp attention, so that each position reads a few others and not the average of all.
_GAIN = {"q_proj": 3.0, "k_proj": 3.0, "v_proj": 2.0, "o_proj": 2.0}
_HEAD_NORM_WEIGHT = 3.0


@dataclass(frozen=True)
class TinyPair:
    """Folders of a target and of the draft that was made for it."""

    target: Path
    draft: Path
    block_size: int


def make_tiny_pair(
    folder: Path,
    *,
    architecture: Architecture = "llama",
    block_size: int = 4,
    draft_layers: int = 1,
    tie_word_embeddings: bool = False,
    seed: int = 0,
) -> TinyPair:
    """Writes the pair under ``folder`` unless it is there already, and returns its paths.

    The folder names say every choice, so pairs of different shapes share one ``folder``.
    """
    tied = "-tied" if tie_word_embeddings else ""
    target = folder / f"tiny-{architecture}{tied}-seed{seed}"
    draft = folder / f"tiny-{architecture}{tied}-seed{seed}-dflash-b{block_size}-l{draft_layers}"
    _write_once(target, lambda path: _write_target(path, architecture, tie_word_embeddings, seed))
    _write_once(draft, lambda path: _write_draft(path, block_size, draft_layers, seed))
    return TinyPair(target, draft, block_size)


def _write_once(folder: Path, write) -> None:
    if folder.is_dir():
        return
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    try:
        partial.rename(folder)
    except OSError:  # another process was faster; its folder has the same bytes
        shutil.rmtree(partial)
        if not folder.is_dir():
            raise


def _write_target(folder: Path, architecture: Architecture, tie_word_embeddings: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    if architecture in ("qwen3_moe", "deepseek_v3", "kimi_k25"):
        from .tiny_families import save_family  # transformers' models take a while to import

        sizes = {"num_hidden_layers": NUM_TARGET_LAYERS, "tie_word_embeddings": tie_word_embeddings, **_shared_config()}
        _finish_target(folder, save_family(architecture, sizes, folder, generator))
        return
    tensors = {"model.embed_tokens.weight": _normal(generator, VOCAB_SIZE, HIDDEN_SIZE) * _EMBEDDING_SCALE}
    for layer in range(NUM_TARGET_LAYERS):
        tensors |= _layer_tensors(generator, f"model.layers.{layer}", head_norms=architecture == "qwen3")
    tensors["model.norm.weight"] = torch.ones(HIDDEN_SIZE)
    if not tie_word_embeddings:
        tensors["lm_head.weight"] = _normal(generator, VOCAB_SIZE, HIDDEN_SIZE) * _EMBEDDING_SCALE
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    config = {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[architecture]],
        "model_type": architecture,
        "num_hidden_layers": NUM_TARGET_LAYERS,
        "tie_word_embeddings": tie_word_embeddings,
        **_shared_config(),
    }
    _finish_target(folder, config)


def _finish_target(folder: Path, config: dict) -> None:
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID})
    build_tiny_tokenizer().save_pretrained(folder)


def _write_draft(folder: Path, block_size: int, num_layers: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed + 1)
    tensors = {
        "fc.weight": _linear(generator, "fc", HIDDEN_SIZE, HIDDEN_SIZE * len(CAPTURED_LAYERS)),
        "hidden_norm.weight": torch.ones(HIDDEN_SIZE),
        "norm.weight": torch.ones(HIDDEN_SIZE),
    }
    for layer in range(num_layers):
        tensors |= _layer_tensors(generator, f"layers.{layer}", head_norms=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": num_layers,
        "layer_types": ["full_attention"] * num_layers,
        "num_target_layers": NUM_TARGET_LAYERS,
        "block_size": block_size,
        "dflash_config": {"target_layer_ids": list(CAPTURED_LAYERS), "mask_token_id": MASK_ID},
        "tie_word_embeddings": True,
        **_shared_config(),
    }
    _write_json(folder / "config.json", config)


def _shared_config() -> dict:
    return {
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INTERMEDIATE_SIZE,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": ROPE_THETA,
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "dtype": "float32",
    }


def _layer_tensors(generator: torch.Generator, prefix: str, *, head_norms: bool) -> dict[str, torch.Tensor]:
    shapes = {
        "self_attn.q_proj": (NUM_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.k_proj": (NUM_KV_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.v_proj": (NUM_KV_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.o_proj": (HIDDEN_SIZE, NUM_HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.up_proj": (INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.down_proj": (HIDDEN_SIZE, INTERMEDIATE_SIZE),
    }
    tensors = {f"{prefix}.{name}.weight": _linear(generator, name, *shape) for name, shape in shapes.items()}
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{prefix}.{name}.weight"] = torch.ones(HIDDEN_SIZE)
    if head_norms:
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            tensors[f"{prefix}.{name}.weight"] = torch.full((HEAD_DIM,), _HEAD_NORM_WEIGHT)
    return tensors


def _linear(generator: torch.Generator, name: str, rows: int, columns: int) -> torch.Tensor:
    return _normal(generator, rows, columns) * (_GAIN.get(name.split(".")[-1], 1.0) / columns**0.5)


def _normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
