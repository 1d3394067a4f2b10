"""From the target's GGUF to bfloat16 safetensors with a fast tokenizer, checked against the GGUF's own metadata."""

import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from .errors import PairError, say


def convert(gguf: Path, folder: Path) -> None:
    """Writes the checkpoint made from ``gguf`` into the existing ``folder``.

    Raises PairError if a file, an id or the chat template differs from the GGUF's metadata.
    """
    say("dequantizing the target to bfloat16 (once, about 270 MB on disk)")
    metadata = _read_metadata(gguf)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    _restore_pre_tokenizer(tokenizer, metadata)
    tokenizer.model_max_length = metadata["llama.context_length"]
    tokenizer.save_pretrained(folder)

    _dequantize(gguf).save_pretrained(folder)
    _write_generation_config(folder, metadata)
    _check(folder, metadata)


def _read_metadata(gguf: Path) -> dict[str, Any]:
    reader = GGUFReader(gguf)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    # llama.cpp's convention: without a tensor of its own the output head is the embedding.
    metadata["tied"] = all(tensor.name != "output.weight" for tensor in reader.tensors)
    return metadata


def _restore_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, metadata: dict[str, Any]) -> None:
    """Splits digits one by one, as the model's own tokenizer does.

    The GGUF names that rule only ("smollm") and transformers does not read the name; without it two spaces before a
    number become tokens that the model never saw there.
    """
    if metadata["tokenizer.ggml.pre"] != "smollm":
        raise PairError(f"the GGUF names the pre-tokenizer {metadata['tokenizer.ggml.pre']!r}, 'smollm' was expected")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _dequantize(gguf: Path) -> PreTrainedModel:
    """Returns the dense bfloat16 model; every weight must be in the GGUF, the tied output head aside.

    ``from_pretrained`` would ask for the accelerate package, only to place one small model on the CPU.
    """
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    tensors = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = set(missing) - set(model.all_tied_weights_keys)
    if missing or unexpected:
        raise PairError(f"the GGUF lacks {sorted(missing)} and holds the unknown tensors {sorted(unexpected)}")
    model.tie_weights()
    return model


def _write_generation_config(folder: Path, metadata: dict[str, Any]) -> None:
    names = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
    values = {name: metadata[f"tokenizer.ggml.{key}"] for name, key in names.items()}
    (folder / "generation_config.json").write_text(json.dumps(values, indent=2) + "\n")


def _check(folder: Path, metadata: dict[str, Any]) -> None:
    """Reads the result back and compares it with the GGUF; raises PairError at the first difference."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    expected = {
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
    }
    comparisons = {
        "tie_word_embeddings": (config.get("tie_word_embeddings"), metadata["tied"]),
        "vocab_size": (config["vocab_size"], len(metadata["tokenizer.ggml.tokens"])),
        "num_hidden_layers": (config["num_hidden_layers"], metadata["llama.block_count"]),
        "max_position_embeddings": (config["max_position_embeddings"], metadata["llama.context_length"]),
        "the chat template": (tokenizer.chat_template, metadata["tokenizer.chat_template"]),
        "a fast tokenizer": (tokenizer.is_fast, True),
        "the tokenizer's size": (len(tokenizer), len(metadata["tokenizer.ggml.tokens"])),
    }
    for name, value in expected.items():
        comparisons[f"config.json's {name}"] = (config.get(name), value)
        comparisons[f"the tokenizer's {name}"] = (getattr(tokenizer, name), value)
    for what, (found, wanted) in comparisons.items():
        if found != wanted:
            raise PairError(f"the converted target is wrong: {what} is {found!r}, the GGUF says {wanted!r}")
