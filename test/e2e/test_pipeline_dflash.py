"""DFLASH over pipeline stages, as CPU processes, chain, tree and a width per round: plain decoding's tokens."""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from harness.plain_and_dflash import LEDGER, TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.scripted_draft import EVERY_WIDTH, scripted_draft_environment, write_script
from harness.server import launch_on_two_nodes
from harness.stream import Stream
from harness.tiny_kimi import KIMI_FLAGS, with_picture

BLOCK = 4
TREE = {"speculative_dflash_tree_budget": 11, "speculative_dflash_tree_topk": 4}
AUTO = {**TREE, "speculative_dflash_tree_budget": "auto", "speculative_dflash_widths": [1, 3, 12]}
WHOLE = {"ignore_eos": True}
LEAST = 1.2  # tokens a round that drafts must have brought somewhere; the first round of a request has none
# Seeds count with this flag alone; one plain server then serves all of the dense pair's tests.
SEEDED = {"enable_deterministic_inference": True}
CONTROLS = {
    "seed": {"temperature": 1.0, "sampling_seed": 7, **WHOLE},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "min_new_tokens": 8},
    "grammar": {"regex": "[a-z ]{10,30}"},
    "logit bias": {"logit_bias": {"40": 4.0}, **WHOLE},
}


def long_prompts(count: int, seed: int) -> list[list[int]]:
    return [prompt * 4 for prompt in prompts(count, seed)]


def short_requests(count: int, seed: int) -> list[dict]:
    return [{"input_ids": p, "max_new_tokens": 32, "sampling": WHOLE} for p in prompts(count, seed)]


def output_ids(answers: list[dict]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


@pytest.fixture(scope="module")
def dense(tiny_pair):
    """Tied: the matrix is the first stage's embedding, the last stage's head, and the embedding of the draft there."""
    return tiny_pair(block_size=BLOCK, tie_word_embeddings=True)


@pytest.fixture(scope="module")
def two_stages(shared_servers, dense, tmp_path_factory):
    """Another width each round; prompts in chunks; micro-batches of at most three requests: several are under way."""
    flags = {"pp_size": 2, "pp_max_micro_batch_size": 3, "page_size": 16, "chunked_prefill_size": 16, **AUTO, **SEEDED}
    return PlainAndDflash(shared_servers, dense, tmp_path_factory.mktemp("stages"), env={EVERY_WIDTH: "1"}, **flags)


def test_staggered_requests_in_several_micro_batches_give_plain_decodings_tokens(two_stages):
    requests = [{"input_ids": p, "sampling": WHOLE} for p in prompts(4, seed=81) + long_prompts(4, seed=82)]
    plain, _ = two_stages.run(requests)  # all at once
    with ThreadPoolExecutor(len(requests)) as threads:
        streams = []
        for request in requests:  # each once the one before it decodes
            streams.append(Stream(threads, two_stages.dflash, request).wait_for_a_token())
        answers = [stream.result() for stream in streams]
    assert_same_tokens(plain, answers, LEAST)


def test_a_cached_prefix_changes_no_token_over_stages(two_stages):
    prompt = long_prompts(1, seed=83)[0]
    assert_same_tokens(*two_stages.run([{"input_ids": prompt}]), LEAST)
    plain, dflash = two_stages.run([{"input_ids": prompt + tail} for tail in ([], [20, 30, 40])])
    assert all(answer["meta_info"]["cached_tokens"] > 0 for answer in dflash)
    assert_same_tokens(plain, dflash, LEAST)


def test_sampling_controls_act_over_stages_as_in_plain_decoding(two_stages):
    requests = [
        {"input_ids": prompt, "sampling": sampling}
        for prompt, sampling in zip(prompts(len(CONTROLS), seed=84), CONTROLS.values(), strict=True)
    ]
    plain, dflash = two_stages.run(requests)
    assert output_ids(dflash) == output_ids(plain)


def test_logprobs_over_stages_are_plain_decodings(two_stages):
    request = {"input_ids": prompts(1, seed=85)[0], "sampling": WHOLE, "return_logprob": True, "top_logprobs_num": 2}
    (plain,), (dflash,) = two_stages.run([request])
    assert dflash["output_ids"] == plain["output_ids"]
    expected, found = (answer["meta_info"]["output_token_logprobs"] for answer in (plain, dflash))
    assert [token for _, token, _ in found] == [token for _, token, _ in expected]
    assert [value for value, *_ in found] == pytest.approx([value for value, *_ in expected], abs=1e-4)


def test_aborted_requests_leave_the_others_on_the_stages_alone(two_stages):
    requests = [{"input_ids": p, "sampling": WHOLE} for p in prompts(4, seed=86)]
    plain, _ = two_stages.run(requests)
    server = two_stages.dflash
    with ThreadPoolExecutor(8) as threads:
        aborted = [
            Stream(threads, server, {**request, "max_new_tokens": 400}, rid=f"aborted-{i}").wait_for_a_token()
            for i, request in enumerate(requests[:2])
        ]
        others = [Stream(threads, server, request) for request in requests[2:]]
        for i in range(len(aborted)):
            server.post("/abort_request", {"rid": f"aborted-{i}"})
        again = [Stream(threads, server, request) for request in requests[:2]]
        assert output_ids([stream.result() for stream in again + others]) == output_ids(plain)
        assert [stream.result()["meta_info"]["finish_reason"]["type"] for stream in aborted] == ["abort", "abort"]


def test_the_first_stage_reports_what_the_rounds_accept(two_stages):
    _, answers = two_stages.run([{"input_ids": p, "sampling": WHOLE} for p in prompts(2, seed=87)])
    rounds = two_stages.dflash.get("/server_info")["internal_states"][0]["spec_rounds"]
    assert rounds["rounds"] >= sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    assert rounds["accept_length"] > 1


@pytest.mark.parametrize("flags", [{"pp_size": 2}, {"tp_size": 2, **TREE}], ids=["stages", "tensor parallel"])
def test_two_launchers_serve_one_server_and_a_lost_one_ends_it(two_stages, dense, tmp_path, flags):
    env = {**scripted_draft_environment(tmp_path / "plugin", tmp_path / "script.json"), **LEDGER}
    requests = [{"input_ids": p, "sampling": WHOLE, "max_new_tokens": TOKENS} for p in prompts(3, seed=90)]
    plain = [two_stages.plain.generate(**request) for request in requests]
    runs = [(request["input_ids"], answer["output_ids"]) for request, answer in zip(requests, plain, strict=True)]
    write_script(tmp_path / "script.json", runs)
    seconds = 60
    options = {"dtype": "float32", "max_running_requests": 64, "watchdog_timeout": seconds, **SEEDED, **flags}
    with launch_on_two_nodes(dense.target, dense.draft, env=env, **options) as (server, node):
        assert_same_tokens(plain, server.generate_concurrently(requests), LEAST)
        for process in psutil.Process(node.pid).children(recursive=True):
            process.kill()
        deadline = time.monotonic() + seconds
        while server.process.is_running():
            assert time.monotonic() < deadline, f"the server still runs:\n{server.process.log_tail()}"
            time.sleep(0.2)
        assert "closed by peer" in server.log or "Connection" in server.log, server.process.log_tail()


def test_a_chain_over_uneven_stages_with_a_small_pool_gives_plain_decodings_tokens(
    shared_servers, tiny_pair, tmp_path_factory
):
    """One layer and three; requests are thrown out and come back."""
    pair = tiny_pair(architecture="qwen3", block_size=BLOCK)
    env = {"SGLANG_PP_LAYER_PARTITION": "1,3", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "16"}
    flags = {"pp_size": 2, "max_total_tokens": 448, "page_size": 16}
    uneven = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("uneven"), env=env, **flags)
    requests = [{"input_ids": p, "max_new_tokens": 190, "sampling": WHOLE} for p in prompts(5, seed=88)]
    plain, dflash = uneven.run(requests)
    assert_same_tokens(plain, dflash, LEAST)
    assert sum(answer["meta_info"]["num_retractions"] for answer in dflash) > 0


def test_experts_on_two_stages_of_two_ranks_give_plain_decodings_tokens(shared_servers, tiny_pair, tmp_path_factory):
    flags = {"pp_size": 2, "tp_size": 2, "ep_size": 2}
    pair = tiny_pair(architecture="qwen3_moe", block_size=BLOCK)
    served = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("experts"), **flags)
    assert_same_tokens(*served.run(short_requests(4, seed=89)), LEAST)


def test_text_and_pictures_on_four_stages_give_plain_decodings_tokens(shared_servers, tiny_pair, tmp_path_factory):
    """A tree over latent attention, in a wrapper: the first stage sees the pictures, the last one drafts."""
    flags = {"pp_size": 4, "page_size": 16, **TREE, **KIMI_FLAGS}
    pair = tiny_pair(architecture="kimi_k25", block_size=BLOCK)
    served = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("pictures"), **flags)
    texts = short_requests(3, seed=89)
    plain, dflash = served.run([*texts, *(with_picture(request, seed=1) for request in texts)])
    assert_same_tokens(plain[:3], dflash[:3], LEAST)
    assert_same_tokens(plain[3:], dflash[3:], LEAST)
    other = served.plain.generate(**with_picture(texts[-1], seed=2))
    assert other["output_ids"] != plain[-1]["output_ids"]
