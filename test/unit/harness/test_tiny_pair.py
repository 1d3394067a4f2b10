"""The tiny pair is what the tests that use it take it for."""

import hashlib

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.tiny_pair import CAPTURED_LAYERS, HIDDEN_SIZE, MAX_POSITIONS, make_tiny_pair
from harness.tiny_tokenizer import MASK_ID, VOCAB_SIZE

PROMPTS = ("Hello the world", "The cat")


def greedy(model, prompt_ids, count):
    ids = torch.tensor([prompt_ids])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return output[0, len(prompt_ids) :].tolist()


@pytest.mark.parametrize(
    "architecture, tied",
    [
        ("llama", False),
        ("llama", True),
        ("qwen3", False),
        ("qwen3", True),
        ("qwen3_moe", False),
        ("deepseek_v3", False),
    ],
)
def test_greedy_output_is_varied_and_depends_on_the_prompt(tiny_pair, architecture, tied):
    target = tiny_pair(architecture=architecture, tie_word_embeddings=tied).target
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(target)

    outputs = [greedy(model, tokenizer(prompt).input_ids, 64) for prompt in PROMPTS]

    assert min(len(set(output)) for output in outputs) >= 20
    assert outputs[0] != outputs[1]


def test_two_writes_of_one_seed_have_the_same_bytes_and_another_seed_has_not(tmp_path):
    def digest(folder, seed):
        pair = make_tiny_pair(folder, seed=seed)
        weights = [part / "model.safetensors" for part in (pair.target, pair.draft)]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in weights]

    assert digest(tmp_path / "a", 0) == digest(tmp_path / "b", 0)
    assert digest(tmp_path / "a", 0) != digest(tmp_path / "c", 1)


def test_a_second_call_reuses_the_folder_and_leaves_no_partial_one(tmp_path):
    first = make_tiny_pair(tmp_path, block_size=8, draft_layers=2)
    written = (first.draft / "model.safetensors").stat().st_mtime_ns
    assert make_tiny_pair(tmp_path, block_size=8, draft_layers=2) == first
    assert (first.draft / "model.safetensors").stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([first.target.name, first.draft.name])


@pytest.mark.parametrize(("block_size", "layers"), [(4, 1), (8, 2)])
def test_the_draft_has_the_z_lab_layout(tiny_pair, block_size, layers):
    draft = tiny_pair(block_size=block_size, draft_layers=layers).draft
    config = AutoConfig.from_pretrained(draft)
    assert (config.block_size, config.num_hidden_layers) == (block_size, layers)
    assert config.dflash_config == {"target_layer_ids": list(CAPTURED_LAYERS), "mask_token_id": MASK_ID}
    assert MASK_ID < config.vocab_size == VOCAB_SIZE
    assert config.max_position_embeddings == MAX_POSITIONS
    with safe_open(draft / "model.safetensors", "pt") as tensors:
        assert tensors.get_slice("fc.weight").get_shape() == [HIDDEN_SIZE, HIDDEN_SIZE * len(CAPTURED_LAYERS)]
        last_norm = f"layers.{layers - 1}.self_attn.q_norm.weight"
        assert {"norm.weight", "hidden_norm.weight", last_norm} <= set(tensors.keys())


def test_the_tokenizer_round_trips_text_and_renders_a_chat(tiny_pair):
    tokenizer = AutoTokenizer.from_pretrained(tiny_pair().target)
    text = 'The other {"key": [1, 2]}\nends here.'
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer("the").input_ids) == 2  # "th" is one token: a stop string may begin inside a token
    messages = [{"role": "user", "content": "hi"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "user: hi\nassistant: "
