"""Draft trees on ranks, and with a set acceptance."""

import pytest
import requests as http

from harness.plain_and_dflash import TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.scripted_draft import EVERY_WIDTH
from harness.server import accept_length, launch

TREE = {"speculative_dflash_tree_budget": 11, "speculative_dflash_tree_topk": 4}
ANY_WIDTH = {
    "speculative_dflash_tree_budget": "auto",
    "speculative_dflash_widths": [1, 4, 12],
    "speculative_dflash_tree_topk": 4,
}


@pytest.fixture(scope="module")
def two_ranks(shared_servers, tiny_pair, tmp_path_factory):
    """Each rank has candidates of its half of the vocabulary, and both must verify at one width and walk one path."""
    folder = tmp_path_factory.mktemp("ranks")
    env = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", EVERY_WIDTH: "1"}
    flags = {"tp_size": 2, "enable_metrics": True, "decode_log_interval": 1, **ANY_WIDTH}
    return PlainAndDflash(shared_servers, tiny_pair(block_size=4), folder, env=env, **flags)


def test_two_tensor_parallel_ranks_give_plain_decodings_tokens(two_ranks):
    requests = [{"input_ids": prompt} for prompt in prompts(3, seed=71)]
    sampled = {"temperature": 1.0, "top_k": 1, "repetition_penalty": 1.3}
    requests += [{"input_ids": prompt, "sampling": sampled} for prompt in prompts(2, seed=72)]
    assert_same_tokens(*two_ranks.run(requests), two_ranks.least_accepted)


def test_server_info_and_prometheus_count_what_the_answers_count(two_ranks):
    _, answers = two_ranks.run([{"input_ids": p, "sampling": {"ignore_eos": True}} for p in prompts(3, seed=74)])
    (state,) = two_ranks.dflash.get("/server_info")["internal_states"]
    rounds = state["spec_rounds"]
    assert rounds["rounds"] >= sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    by_width = {int(width): count for width, count in rounds["rounds_by_width"].items()}
    assert sorted(by_width) == [1, 4, 12] and sum(by_width.values()) >= rounds["rounds"]
    assert rounds["verified_nodes"] == sum(width * count for width, count in by_width.items())
    assert rounds["accept_length"] == pytest.approx(1 + sum(rounds["accept_rate_by_depth"]))
    assert 1 >= rounds["accept_rate_by_depth"][0] >= rounds["accept_rate_by_depth"][-1] > 0
    assert set(rounds["stage_milliseconds"]) == {"draft", "tree_build", "verify", "accept", "commit"}
    lines = http.get(f"{two_ranks.dflash.url}/metrics", timeout=60).text.splitlines()
    nodes = [float(line.split()[-1]) for line in lines if line.startswith("sglang:spec_verified_nodes_total{")]
    assert nodes and 0 < nodes[0] <= rounds["verified_nodes"]
    assert any(line.startswith("sglang:spec_accepted_depth_total{") and 'depth="3"' in line for line in lines)
    assert any(line.startswith("sglang:spec_verified_width_total{") and 'width="12"' in line for line in lines)
    assert any(line.startswith("sglang:spec_stage_seconds{") and 'stage="verify"' in line for line in lines)


def test_a_server_measures_its_widths_and_says_what_it_chose_and_why(shared_servers, tiny_pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    served = PlainAndDflash(
        shared_servers, tiny_pair(block_size=4), folder, env={"SGLANG_CACHE_DIR": str(folder)}, **ANY_WIDTH
    )
    requests = [{"input_ids": p, "max_new_tokens": 300, "sampling": {"ignore_eos": True}} for p in prompts(2, seed=75)]
    plain, dflash = served.run(requests)
    assert [answer["output_ids"] for answer in dflash] == [answer["output_ids"] for answer in plain]
    (state,) = served.dflash.get("/server_info")["internal_states"]
    chosen = state["spec_rounds"]["widths"]
    assert chosen["emitted_by_width"]["12"] > chosen["emitted_by_width"]["1"] == 1
    for known in chosen["batch_classes"].values():
        speeds = {
            width: chosen["emitted_by_width"][width] / cost for width, cost in known["milliseconds_by_width"].items()
        }
        assert known["trial"] is not None or speeds[str(known["width"])] > 0.8 * max(speeds.values()), chosen
    assert set(state["spec_rounds"]["rounds_by_width"]) == {"1", "4", "12"}, "each is tried at least"


def test_a_set_acceptance_is_what_trees_accept(tiny_pair):
    length, pair = 2.5, tiny_pair(block_size=4)
    env = {"SGLANG_SIMULATE_ACC_LEN": str(length)}
    with launch(pair.target, pair.draft, env=env, dtype="float32", max_running_requests=4, **TREE) as server:
        answer = server.generate(
            input_ids=prompts(1, seed=73)[0], max_new_tokens=4 * TOKENS, sampling={"ignore_eos": True}
        )
    assert accept_length(answer["meta_info"]) == pytest.approx(length, rel=0.15)
