"""R29: two CPU ranks with half of the experts each give the tokens of one rank that has them all, with trees, too."""

from harness.plain_and_dflash import prompts

REQUESTS = [{"input_ids": prompt, "max_new_tokens": 16} for prompt in prompts(3, 71)]
RANKS = {"tp_size": 2, "ep_size": 2, "env": {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}}


def answers(server) -> list[list[int]]:
    return [answer["output_ids"] for answer in server.generate_concurrently(REQUESTS)]


def test_r29_experts_over_two_ranks_equal_one_rank(shared_servers, tiny_pair):
    pair = tiny_pair(architecture="qwen3_moe")
    expected = answers(shared_servers.get(pair.target, dtype="float32", page_size=16))
    parted = shared_servers.get(pair.target, pair.draft, dtype="float32", speculative_dflash_tree_budget=8, **RANKS)
    assert answers(parted) == expected
