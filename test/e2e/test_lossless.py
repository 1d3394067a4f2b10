"""Greedy DFLASH gives plain decoding's tokens, on the tiny random pair in float32 and on the bundled pair.

Plain decoding answers one request at a time; DFLASH gets them together, with a scripted drafter that is right to a
depth which changes from round to round, so that every accept length occurs. The servers keep upstream's page ledger:
a page with two owners, or with none, ends them.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests as http

from harness.plain_and_dflash import TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.scripted_draft import EVERY_WIDTH
from harness.server import REQUEST_SECONDS, Server, accept_length
from harness.stream import Stream
from harness.tiny_pair import MAX_POSITIONS
from harness.tiny_tokenizer import EOS_ID

BLOCK = 4
LAYOUTS = {
    "page 1": {"page_size": 1},
    "page 16, prompts in chunks of 16": {"page_size": 16, "chunked_prefill_size": 16},
    "trees of another width each round, page 16, prompts in chunks of 16": {
        "page_size": 16,
        "chunked_prefill_size": 16,
        "speculative_dflash_tree_budget": "auto",
        "speculative_dflash_widths": [1, 2, 8, 32],
        "env": {EVERY_WIDTH: "1"},
    },
}
SHAPES = {  # budget, topk, page size
    "one node, narrower than the draft's block": (1, 1, 64),
    "a chain with room for more": (31, 1, 1),
    "wide": (64, 16, 64),
}
WHOLE = {"ignore_eos": True}


@pytest.fixture(scope="module", params=LAYOUTS)
def served(request, shared_servers, tiny_pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lossless")
    return PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), folder, **LAYOUTS[request.param])


def long_prompts(count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[1, *(rng.randrange(4, 128) for _ in range(rng.randrange(20, 60)))] for _ in range(count)]


def output_ids(answers: list[dict]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


def finish_types(answers: list[dict]) -> list[str]:
    return [answer["meta_info"]["finish_reason"]["type"] for answer in answers]


# --- lengths, pages, caches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", range(1, 9))
def test_a_batch_gives_the_tokens_of_single_plain_requests(served, batch_size):
    inputs = prompts(batch_size // 2, seed=batch_size) + long_prompts(batch_size - batch_size // 2, seed=batch_size)
    plain, dflash = served.run([{"input_ids": prompt} for prompt in inputs])
    assert_same_tokens(plain, dflash, served.least_accepted)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_of_any_shape_gives_plain_decodings_tokens(shared_servers, tiny_pair, tmp_path_factory, shape):
    budget, topk, page = SHAPES[shape]
    flags = {"speculative_dflash_tree_budget": budget, "speculative_dflash_tree_topk": topk, "page_size": page}
    served = PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), tmp_path_factory.mktemp("shape"), **flags)
    plain, dflash = served.run([{"input_ids": p} for p in prompts(3, seed=budget) + long_prompts(3, seed=budget)])
    assert_same_tokens(plain, dflash, served.least_accepted)


def test_every_accept_length_occurs_and_changes_nothing(served):
    plain, dflash = served.run([{"input_ids": p, "sampling": WHOLE} for p in prompts(3, seed=31)])
    assert_same_tokens(plain, dflash, served.least_accepted)
    histograms = [answer["meta_info"]["spec_correct_drafts_histogram"] for answer in dflash]
    if served.every_width:  # at random, which may spare one request a length
        histograms = [list(map(sum, zip(*histograms, strict=True)))]
    for histogram in histograms:
        assert len(histogram) == BLOCK and all(histogram), histogram


def test_a_cached_prefix_changes_no_token(served):
    prompt = long_prompts(1, seed=7)[0]
    served.dflash.flush_cache()
    assert_same_tokens(*served.run([{"input_ids": prompt}]), served.least_accepted)
    plain, dflash = served.run([{"input_ids": prompt + tail} for tail in ([], [20, 30, 40], [50])])
    assert all(answer["meta_info"]["cached_tokens"] > 0 for answer in dflash)
    assert_same_tokens(plain, dflash, served.least_accepted)


def test_rounds_outlive_a_prompt_longer_than_any_before(shared_servers, tiny_pair, tmp_path_factory):
    """On a GPU the graphs of rounds stay while prompts grow what they share, and a flush gives the old memory back."""
    tree = {"speculative_dflash_tree_budget": 8, "speculative_dflash_tree_topk": 4}
    served = PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), tmp_path_factory.mktemp("long"), **tree)
    longest = [1, *(4 + at % 120 for at in range(MAX_POSITIONS - 60))]
    for inputs in ([longest], prompts(4, seed=43)):
        plain, dflash = served.run([{"input_ids": prompt} for prompt in inputs])
        assert_same_tokens(plain, dflash, served.least_accepted)
        served.dflash.flush_cache()


def test_requests_fill_the_context_like_plain_decoding(served):
    requests = [
        {"input_ids": p, "max_new_tokens": MAX_POSITIONS - len(p), "sampling": WHOLE} for p in long_prompts(3, seed=41)
    ]
    plain, dflash = served.run(requests)
    assert_same_tokens(plain, dflash, served.least_accepted)
    for request, answer in zip(requests, dflash, strict=True):
        assert len(request["input_ids"]) + len(answer["output_ids"]) >= MAX_POSITIONS - 2


# --- ends inside an accepted block ----------------------------------------------------------------------------------


def test_the_length_limit_cuts_an_accepted_block(served):
    inputs = prompts(4, seed=3)
    whole, _ = served.run([{"input_ids": p, "sampling": WHOLE} for p in inputs])
    for length in range(9, 9 + BLOCK):
        requests = [{"input_ids": p, "max_new_tokens": length, "sampling": WHOLE} for p in inputs]
        plain, dflash = served.run(requests, drafts=output_ids(whole))
        assert output_ids(dflash) == output_ids(plain) == [draft[:length] for draft in output_ids(whole)]
        assert finish_types(dflash) == ["length"] * len(inputs)


def test_a_stop_token_cuts_an_accepted_block(served):
    inputs = prompts(8, seed=11)
    whole, _ = served.run([{"input_ids": p, "sampling": WHOLE} for p in inputs])
    stops = [answer["output_ids"][10 + place] for place, answer in enumerate(whole)]  # over every column of a block
    requests = [{"input_ids": p, "sampling": {"stop_token_ids": [stop]}} for p, stop in zip(inputs, stops, strict=True)]
    plain, dflash = served.run(requests, drafts=output_ids(whole))
    assert output_ids(dflash) == output_ids(plain)
    for answer, stop in zip(dflash, stops, strict=True):
        assert answer["meta_info"]["finish_reason"]["matched"] in (stop, EOS_ID)
        assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) <= 18


def test_the_end_of_sequence_cuts_an_accepted_block(served):
    """From a set length on the target wants nothing but the end, again and again, and so does the drafter."""
    requests = [
        {"input_ids": p, "sampling": {"logit_bias": {str(EOS_ID): 100.0}, "min_new_tokens": length}}
        for length, p in enumerate(prompts(8, seed=12), start=9)
    ]
    plain, _ = served.run(requests)
    plain, dflash = served.run(requests, drafts=[ids + [EOS_ID] * BLOCK for ids in output_ids(plain)])
    assert output_ids(dflash) == output_ids(plain)
    assert {answer["meta_info"]["finish_reason"]["matched"] for answer in dflash} == {EOS_ID}
    assert all(ids.count(EOS_ID) <= 1 for ids in output_ids(dflash))


def test_a_stop_string_cuts_the_text_where_plain_decoding_does(served):
    inputs = prompts(6, seed=13)
    whole, _ = served.run([{"input_ids": p, "sampling": WHOLE} for p in inputs])
    requests = [
        {"input_ids": p, "sampling": {**WHOLE, "stop": answer["text"][15 + place : 17 + place]}}
        for place, (p, answer) in enumerate(zip(inputs, whole, strict=True))
    ]
    plain, dflash = served.run(requests, drafts=output_ids(whole))
    assert [a["text"] for a in dflash] == [a["text"] for a in plain]
    assert finish_types(dflash) == finish_types(plain)
    assert finish_types(dflash).count("stop") >= 4  # not all: no stop string is found across a special token


# --- requests that leave early --------------------------------------------------------------------------------------


def test_cancelled_and_retried_requests_leave_all_others_alone_r02(served):
    shared = long_prompts(1, seed=21)[0]
    requests = [{"input_ids": shared + [40 + i], "sampling": WHOLE} for i in range(3)]
    requests += [{"input_ids": p, "sampling": WHOLE} for p in prompts(2, seed=22)]
    plain, _ = served.run(requests)
    server = served.dflash
    with ThreadPoolExecutor(8) as threads:
        neighbour = Stream(threads, server, requests[2])
        cancelled = [
            Stream(threads, server, {**request, "max_new_tokens": 400}, rid=f"cancelled-{i}")
            for i, request in enumerate(requests[:2])
        ]
        for i, stream in enumerate(cancelled):
            stream.wait_for_a_token()
            server.post("/abort_request", {"rid": f"cancelled-{i}"})
        unrelated = [Stream(threads, server, request) for request in requests[3:]]
        retried = [Stream(threads, server, request) for request in requests[:2]]
        answers = [stream.result() for stream in (*retried, neighbour, *unrelated)]
    assert finish_types([stream.result() for stream in cancelled]) == ["abort", "abort"]
    assert output_ids(answers) == output_ids(plain)
    assert_idle(server)


def test_a_client_that_hangs_up_leaves_all_others_alone_r02(served):
    requests = [{"input_ids": p, "sampling": WHOLE} for p in long_prompts(3, seed=23)]
    plain, _ = served.run(requests)
    server = served.dflash
    with ThreadPoolExecutor(8) as threads:
        gone = Stream(threads, server, {**requests[0], "max_new_tokens": 400}).wait_for_a_token()
        others = [Stream(threads, server, request) for request in requests[1:]]
        gone.close()
        assert output_ids([other.result() for other in others]) == output_ids(plain[1:])
        assert len(gone.result()["output_ids"]) < 400
    assert server.generate(max_new_tokens=TOKENS, **requests[0])["output_ids"] == plain[0]["output_ids"]
    assert_idle(server)


def assert_idle(server: Server) -> None:
    """The server becomes idle, when it counts its pages and ends itself if one is lost, and goes on answering."""
    deadline = time.monotonic() + 30
    while sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in server.get("/v1/loads")["loads"]):
        assert time.monotonic() < deadline, "requests still run"
        time.sleep(0.05)
    time.sleep(0.2)
    assert http.get(f"{server.url}/health_generate", timeout=REQUEST_SECONDS).status_code == 200


# --- a pool that is too small ---------------------------------------------------------------------------------------


CHAIN = {"speculative_dflash_tree_budget": 0}
PLAIN_OR_TREE = {"speculative_dflash_tree_budget": "auto", "speculative_dflash_widths": [1, 8]}


@pytest.fixture(scope="module", params=[CHAIN, PLAIN_OR_TREE], ids=["chain", "tree and plain decoding by turns"])
def small_pool(request, shared_servers, tiny_pair, tmp_path_factory):
    """A pool smaller than one context, and a server that admits more than it holds."""
    env = {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "16", EVERY_WIDTH: "1"}  # few tokens expected, so many admitted
    folder = tmp_path_factory.mktemp("small")
    flags = {"max_total_tokens": 448, "page_size": 16, **request.param}
    return PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), folder, env=env, **flags)


def test_retracted_requests_come_back_with_the_same_tokens_r19(small_pool):
    requests = [{"input_ids": p, "max_new_tokens": 190, "sampling": WHOLE} for p in prompts(5, seed=51)]
    plain, dflash = small_pool.run(requests)
    assert_same_tokens(plain, dflash, small_pool.least_accepted)
    assert sum(answer["meta_info"]["num_retractions"] for answer in dflash) > 0
    assert_idle(small_pool.dflash)


def test_a_request_ends_in_order_where_the_pool_ends_r19(small_pool):
    prompt = prompts(1, seed=52)[0]
    request = {"input_ids": prompt, "max_new_tokens": MAX_POSITIONS - len(prompt) - 1, "sampling": WHOLE}
    (plain,), (dflash,) = small_pool.run([request])
    assert finish_types([plain, dflash]) == ["length", "length"]
    assert len(plain["output_ids"]) > len(dflash["output_ids"]) > 380
    assert plain["output_ids"][: len(dflash["output_ids"])] == dflash["output_ids"]


def test_a_prompt_that_the_pool_never_holds_is_refused_and_holds_up_nobody_r19(small_pool):
    good = {"input_ids": prompts(1, seed=53)[0], "sampling": WHOLE}
    (plain,), _ = small_pool.run([good])
    refused = small_pool.dflash.post("/generate", {"input_ids": [1] * 436, "sampling_params": {"max_new_tokens": 8}})
    assert refused.status_code == 400 and "input_len=436" in refused.text, refused.text
    assert small_pool.dflash.generate(max_new_tokens=TOKENS, **good)["output_ids"] == plain["output_ids"]


# --- other pairs ----------------------------------------------------------------------------------------------------


def test_qwen3_and_a_draft_that_sees_a_window_of_its_context(shared_servers, tiny_pair, tmp_path_factory):
    pair = tiny_pair(architecture="qwen3", block_size=8, draft_layers=2)
    flags = {"page_size": 16, "speculative_draft_window_size": 8}
    served = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("qwen3"), **flags)
    plain, dflash = served.run([{"input_ids": prompt} for prompt in prompts(2, seed=61) + long_prompts(2, seed=61)])
    assert_same_tokens(plain, dflash, served.least_accepted)


CHATS = ["Why is the sky blue?", "Write a haiku about rain.", "What is 12 times 7?", "Name three fruits."]


@pytest.fixture(scope="module")
def smollm_requests():
    texts = [f"<|im_start|>user\n{chat}<|im_end|>\n<|im_start|>assistant\n" for chat in CHATS]
    return [{"text": text, "max_new_tokens": 40} for text in texts]


def test_the_bundled_pair_gives_plain_decodings_tokens_in_float32(shared_servers, bundled_pair, smollm_requests):
    plain_server = shared_servers.get(bundled_pair.target, dtype="float32")
    plain = [plain_server.generate(**request) for request in smollm_requests]
    dflash_server = shared_servers.get(bundled_pair.target, bundled_pair.draft, dtype="float32")
    dflash = dflash_server.generate_concurrently(smollm_requests)
    assert output_ids(dflash) == output_ids(plain)
    assert max(accept_length(answer["meta_info"]) for answer in dflash) > 1.1


def test_a_warm_cache_leaves_the_drafts_as_good_as_a_cold_one_r14(shared_servers, bundled_pair, smollm_requests):
    """The trained draft reads the context that prefill left it: a wrong one would show in what it accepts."""
    server = shared_servers.get(bundled_pair.target, bundled_pair.draft, dtype="float32")
    server.flush_cache()
    cold, warm = (server.generate_concurrently(smollm_requests) for _ in range(2))
    assert all(answer["meta_info"]["cached_tokens"] > 10 for answer in warm)
    assert output_ids(warm) == output_ids(cold)
    rounds = [sum(answer["meta_info"]["spec_verify_ct"] for answer in answers) for answers in (cold, warm)]
    assert rounds[1] == pytest.approx(rounds[0], rel=0.05)
