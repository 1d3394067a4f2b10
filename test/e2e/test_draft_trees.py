"""Draft trees on ranks, and with a set acceptance."""

import pytest

from harness.plain_and_dflash import TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.server import accept_length, launch

TREE = {"speculative_dflash_tree_budget": 11, "speculative_dflash_tree_topk": 4}


def test_two_tensor_parallel_ranks_give_plain_decodings_tokens(shared_servers, tiny_pair, tmp_path_factory):
    """The vocabulary is split: each rank has candidates of its own half, and both must walk the same path."""
    folder = tmp_path_factory.mktemp("ranks")
    cores = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    served = PlainAndDflash(shared_servers, tiny_pair(block_size=4), folder, env=cores, tp_size=2, **TREE)
    requests = [{"input_ids": prompt} for prompt in prompts(3, seed=71)]
    sampled = {"temperature": 1.0, "top_k": 1, "repetition_penalty": 1.3}
    requests += [{"input_ids": prompt, "sampling": sampled} for prompt in prompts(2, seed=72)]
    assert_same_tokens(*served.run(requests))


def test_a_set_acceptance_is_what_trees_accept(tiny_pair):
    length, pair = 2.5, tiny_pair(block_size=4)
    env = {"SGLANG_SIMULATE_ACC_LEN": str(length)}
    with launch(pair.target, pair.draft, env=env, dtype="float32", max_running_requests=4, **TREE) as server:
        answer = server.generate(
            input_ids=prompts(1, seed=73)[0], max_new_tokens=4 * TOKENS, sampling={"ignore_eos": True}
        )
    assert accept_length(answer["meta_info"]) == pytest.approx(length, rel=0.15)
