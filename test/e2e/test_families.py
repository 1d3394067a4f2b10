"""Families beside Llama, on the CPU platform: plain decoding and DFLASH both give the tokens of transformers.

Tiny random models in float32: experts (Qwen3 MoE), experts with latent attention (DeepSeek V3, alone and inside Kimi
K2.5).
"""

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.plain_and_dflash import PlainAndDflash, assert_same_tokens, prompts
from harness.tiny_kimi import KIMI_FLAGS

BLOCK, COUNT = 4, 32
FAMILIES = ["qwen3_moe", "deepseek_v3"]
WRAPPED = {"deepseek_v3": ("kimi_k25", KIMI_FLAGS)}  # with the same weights
REQUESTS = [
    {"input_ids": prompt, "max_new_tokens": COUNT, "sampling": {"ignore_eos": True}} for prompt in prompts(4, 71)
]


@pytest.fixture(scope="module", params=FAMILIES)
def architecture(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def pair(architecture, tiny_pair):
    return tiny_pair(architecture=architecture, block_size=BLOCK)


@pytest.fixture(scope="module")
def served(pair, shared_servers, tmp_path_factory):
    return PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("family"), page_size=16)


@pytest.fixture(scope="module")
def expected(pair) -> list[list[int]]:
    """Greedy tokens of transformers."""
    model = AutoModelForCausalLM.from_pretrained(pair.target, dtype=torch.float32)
    options = {"max_new_tokens": COUNT, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    outputs = [model.generate(torch.tensor([request["input_ids"]]), **options)[0].tolist() for request in REQUESTS]
    return [output[len(request["input_ids"]) :] for request, output in zip(REQUESTS, outputs, strict=True)]


def test_plain_decoding_gives_the_tokens_of_transformers(served, expected):
    answers = served.plain.generate_concurrently(REQUESTS)
    assert [answer["output_ids"] for answer in answers] == expected


def test_dflash_gives_the_tokens_of_transformers(served, expected):
    served.propose([(request["input_ids"], output) for request, output in zip(REQUESTS, expected, strict=True)])
    answers = served.dflash.generate_concurrently(REQUESTS)
    assert_same_tokens([{"output_ids": output} for output in expected], answers)


def test_trees_give_the_tokens_of_transformers(architecture, expected, tiny_pair, shared_servers, tmp_path_factory):
    architecture, flags = WRAPPED.get(architecture, (architecture, {}))
    pair = tiny_pair(architecture=architecture, block_size=BLOCK)
    tree = {"speculative_dflash_tree_budget": 11, "speculative_dflash_tree_topk": 4, **flags}
    served = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("tree"), page_size=16, **tree)
    served.propose([(request["input_ids"], output) for request, output in zip(REQUESTS, expected, strict=True)])
    answers = served.dflash.generate_concurrently(REQUESTS)
    assert_same_tokens([{"output_ids": output} for output in expected], answers)
