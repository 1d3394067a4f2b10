"""Greedy DFLASH gives plain decoding's tokens, on the tiny random pair in float32 and on the bundled pair.

Plain decoding answers one request at a time; DFLASH gets them together, with a scripted drafter that is right to a
depth which changes from round to round, so that every accept length occurs.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests as http

from harness.plain_and_dflash import TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.server import accept_length
from harness.tiny_pair import MAX_POSITIONS
from harness.tiny_tokenizer import EOS_ID

BLOCK = 4
LAYOUTS = {
    "page 1": {"page_size": 1},
    "page 16": {"page_size": 16},
    "page 16, prompts in chunks of 16": {"page_size": 16, "chunked_prefill_size": 16},
}


@pytest.fixture(scope="module", params=LAYOUTS)
def served(request, shared_servers, tiny_pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lossless")
    return PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), folder, **LAYOUTS[request.param])


def long_prompts(count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[1, *(rng.randrange(4, 128) for _ in range(rng.randrange(20, 60)))] for _ in range(count)]


@pytest.mark.parametrize("batch_size", [1, 2, 5, 8])
def test_a_batch_gives_the_tokens_of_single_plain_requests(served, batch_size):
    inputs = prompts(batch_size // 2, seed=batch_size) + long_prompts(batch_size - batch_size // 2, seed=batch_size)
    plain, dflash = served.run([{"input_ids": prompt, "max_new_tokens": 80} for prompt in inputs])
    assert_same_tokens(plain, dflash)


def test_every_accept_length_occurs_and_changes_nothing(served):
    plain, dflash = served.run([{"input_ids": p, "sampling": {"ignore_eos": True}} for p in prompts(3, seed=31)])
    assert_same_tokens(plain, dflash)
    for answer in dflash:
        histogram = answer["meta_info"]["spec_correct_drafts_histogram"]
        assert len(histogram) == BLOCK and all(histogram), histogram


def test_a_cached_prefix_changes_neither_tokens_nor_accept_length_r14(served):
    prompt = long_prompts(1, seed=7)[0]
    requests = [{"input_ids": prompt + tail} for tail in ([], [20, 30, 40], [50])]
    served.dflash.flush_cache()
    plain, cold = served.run(requests[:1])
    again, warm = served.run(requests)
    assert warm[1]["meta_info"]["cached_tokens"] > 0
    assert_same_tokens(again, warm)
    assert warm[0]["meta_info"]["spec_verify_ct"] == cold[0]["meta_info"]["spec_verify_ct"]


@pytest.mark.parametrize("length", range(9, 9 + BLOCK))
def test_the_length_limit_cuts_inside_an_accepted_block(served, length):
    plain, dflash = served.run(
        [{"input_ids": p, "max_new_tokens": length, "sampling": {"ignore_eos": True}} for p in prompts(2, seed=3)]
    )
    assert_same_tokens(plain, dflash)
    assert [len(answer["output_ids"]) for answer in dflash] == [length, length]


def test_a_stop_token_and_eos_cut_inside_an_accepted_block(served):
    requests = [{"input_ids": p, "sampling": {"ignore_eos": True}} for p in prompts(4, seed=11)]
    plain, _ = served.run(requests)
    stopping = []
    for place, (request, answer) in enumerate(zip(requests, plain, strict=True)):
        stop = answer["output_ids"][12 + place]  # four neighbours: every column of a block of four is met
        stopping.append({"input_ids": request["input_ids"], "sampling": {"stop_token_ids": [stop]}})
    eos = [
        {"input_ids": p, "sampling": {"logit_bias": {str(EOS_ID): 100.0}, "min_new_tokens": n}}
        for n, p in enumerate(prompts(4, seed=12), start=9)
    ]
    plain, dflash = served.run(stopping + eos)
    assert [a["output_ids"] for a in dflash] == [a["output_ids"] for a in plain]
    assert {a["meta_info"]["finish_reason"]["type"] for a in dflash[4:]} == {"stop"}
    assert all(len(a["output_ids"]) <= 16 for a in dflash[:4])


def test_a_stop_string_cuts_the_text_where_plain_decoding_does(served):
    requests = [{"input_ids": p, "sampling": {"ignore_eos": True}} for p in prompts(3, seed=13)]
    plain, _ = served.run(requests)
    cut = [
        {**request, "sampling": {"ignore_eos": True, "stop": answer["text"][17:19]}}
        for request, answer in zip(requests, plain, strict=True)
    ]
    plain, dflash = served.run(cut)
    assert [a["text"] for a in dflash] == [a["text"] for a in plain]
    assert {a["meta_info"]["finish_reason"]["type"] for a in dflash} == {"stop"}


def test_a_cancelled_and_retried_request_leaves_its_neighbours_alone_r02(served):
    shared = long_prompts(1, seed=21)[0]
    requests = [{"input_ids": shared + [40 + i], "sampling": {"ignore_eos": True}} for i in range(2)]
    requests += [{"input_ids": prompts(1, seed=22)[0], "sampling": {"ignore_eos": True}}]
    plain, _ = served.run(requests)
    server = served.dflash
    with ThreadPoolExecutor(4) as threads:
        cancelled = threads.submit(
            server.post,
            "/generate",
            {"input_ids": requests[0]["input_ids"], "rid": "cancelled", "sampling_params": {"max_new_tokens": 400}},
        )
        others = [threads.submit(server.generate, max_new_tokens=48, **r) for r in requests[1:]]
        time.sleep(0.05)
        server.post("/abort_request", {"rid": "cancelled"})
        retried = server.generate(max_new_tokens=48, **requests[0])
        cancelled.result()
        answers = [retried, *(other.result() for other in others)]
    assert [a["output_ids"] for a in answers] == [a["output_ids"] for a in plain]


def test_a_request_that_fills_the_context_ends_like_plain_decoding(served):
    requests = [
        {"input_ids": p, "max_new_tokens": MAX_POSITIONS - len(p), "sampling": {"ignore_eos": True}}
        for p in long_prompts(2, seed=41)
    ]
    plain, dflash = served.run(requests)
    assert_same_tokens(plain, dflash)
    assert all(answer["meta_info"]["completion_tokens"] > 400 for answer in dflash)


def test_retracted_requests_resume_with_the_same_tokens_r19(shared_servers, tiny_pair, tmp_path_factory):
    served = PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), tmp_path_factory.mktemp("retract"))
    requests = [{"input_ids": p, "sampling": {"ignore_eos": True}} for p in prompts(3, seed=52)]
    plain, _ = served.run(requests)
    resumed = served.retracting.generate_concurrently([{**request, "max_new_tokens": TOKENS} for request in requests])
    assert [answer["output_ids"] for answer in resumed] == [answer["output_ids"] for answer in plain]
    assert sum(answer["meta_info"]["num_retractions"] for answer in resumed) > 0


def test_a_small_pool_serves_more_requests_than_it_holds_r19(shared_servers, tiny_pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    served = PlainAndDflash(shared_servers, tiny_pair(block_size=BLOCK), folder, max_total_tokens=448)
    requests = [{"input_ids": p, "max_new_tokens": 150, "sampling": {"ignore_eos": True}} for p in prompts(6, seed=51)]
    plain, dflash = served.run(requests)
    assert_same_tokens(plain, dflash)
    too_large = {"input_ids": [1] * 440, "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
    assert served.dflash.post("/generate", too_large).status_code in (200, 400)
    assert served.dflash.generate(**requests[0])["output_ids"] == plain[0]["output_ids"]


def test_qwen3_gives_plain_decodings_tokens(shared_servers, tiny_pair, tmp_path_factory):
    pair = tiny_pair(architecture="qwen3", block_size=8, draft_layers=2)
    served = PlainAndDflash(shared_servers, pair, tmp_path_factory.mktemp("qwen3"))
    plain, dflash = served.run([{"input_ids": prompt} for prompt in prompts(4, seed=61)])
    assert_same_tokens(plain, dflash)


CHATS = ["Why is the sky blue?", "Write a haiku about rain.", "What is 12 times 7?", "Name three fruits."]


@pytest.fixture(scope="module")
def bundled_pair():
    from sglang.bundled_pair.prepare import prepare_pair

    return prepare_pair()


def test_the_bundled_pair_gives_plain_decodings_tokens_in_float32(shared_servers, bundled_pair):
    texts = [f"<|im_start|>user\n{chat}<|im_end|>\n<|im_start|>assistant\n" for chat in CHATS]
    requests = [{"text": text, "max_new_tokens": 40} for text in texts]
    plain_server = shared_servers.get(bundled_pair.target, dtype="float32")
    plain = [plain_server.generate(**request) for request in requests]
    server = shared_servers.get(bundled_pair.target, bundled_pair.draft, dtype="float32")
    dflash = server.generate_concurrently(requests)
    assert [a["output_ids"] for a in dflash] == [a["output_ids"] for a in plain]
    assert max(accept_length(a["meta_info"]) for a in dflash) > 1.1
    assert http.get(f"{server.url}/health", timeout=60).status_code == 200
