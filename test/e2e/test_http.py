"""DFLASH end to end over HTTP, as clients use it.

The bundled pair in bfloat16 shows that real answers come back. A random target in float32, served plainly too and
with a scripted drafter, shows that they are plain decoding's: the same text, reasons, counts and log-probabilities.
"""

import json
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests as http
from transformers import AutoTokenizer

from harness.plain_and_dflash import PlainAndDflash
from harness.server import Server, accept_length

BLOCK = 4
CLIENTS = 16
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
# Of each token of the bundled target's answer the next best is 0.9 nats away: more than rounding on any device.
CERTAIN = "What is the capital of Japan?"
PERSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


def chat(content: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"model": "default", "messages": [message], "max_tokens": 32, "temperature": 0, **fields}


def completion(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"model": "default", "prompt": prompt, "max_tokens": 32, "temperature": 0, **fields}


def answer(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = server.post(path, body)
    assert response.status_code == 200, f"{response.status_code}: {response.text}"
    return response.json()


def ask_at_once(server: Server, requests: list[tuple[str, dict]]) -> list[dict[str, Any]]:
    """Each request from a client of its own."""
    with ThreadPoolExecutor(len(requests)) as clients:
        return list(clients.map(lambda request: answer(server, *request), requests))


def events(server: Server, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of one streamed answer, each as it was sent; the stream must be ended in order."""
    with server.post(path, {**body, "stream": True}, stream=True) as response:
        assert response.status_code == 200, response.text
        lines = [line.removeprefix("data: ") for line in response.iter_lines(decode_unicode=True) if line]
    assert lines[-1] == "[DONE]"
    yield from map(json.loads, lines[:-1])


def text_of(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return choice["text"]
    return choice.get("message", choice.get("delta")).get("content") or ""


def assert_is_a_person(text: str) -> None:
    person = json.loads(text)
    assert sorted(person) == ["age", "likes", "name"]
    assert isinstance(person["name"], str) and len(person["name"]) <= 8
    assert isinstance(person["age"], int) and 0 <= person["age"] <= 99
    assert 1 <= len(person["likes"]) <= 2 and set(person["likes"]) <= {"tea", "rain"}


# --- a random target: DFLASH answers like plain decoding ------------------------------------------------------------


class Pair:
    """A plain and a DFLASH server of the tiny target, asked in text."""

    def __init__(self, served: PlainAndDflash, tokenizer) -> None:
        self.served, self._tokenizer = served, tokenizer

    def ask_both(self, requests: list[tuple[str, dict]]) -> tuple[list, list]:
        """Answers of plain decoding, one request at a time, and of DFLASH, each from a client of its own."""
        plain = [answer(self.served.plain, path, body) for path, body in requests]
        self.let_drafts_be_right(requests)
        return plain, ask_at_once(self.served.dflash, requests)

    def let_drafts_be_right(self, requests: list[tuple[str, dict]]) -> None:
        """Puts plain decoding's tokens into the script of these requests."""
        runs = []
        for path, body in requests:
            prompt = self._prompt_ids(path, body)
            sampling = {"json_schema": json.dumps(PERSON)} if "response_format" in body else {"ignore_eos": True}
            output = self.served.plain.generate(input_ids=prompt, max_new_tokens=64, sampling=sampling)["output_ids"]
            runs.append((prompt, output))
        self.served.propose(runs)

    def _prompt_ids(self, path: str, body: dict) -> list[int]:
        text = body.get("prompt", body.get("text"))
        if path == CHAT:
            text = self._tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True)
        return self._tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(scope="module")
def pair(shared_servers, tiny_pair, tmp_path_factory) -> Pair:
    tiny = tiny_pair(block_size=BLOCK)
    served = PlainAndDflash(
        shared_servers, tiny, tmp_path_factory.mktemp("http"), constrained_json_disable_any_whitespace=True
    )
    return Pair(served, AutoTokenizer.from_pretrained(tiny.target))


def without_names(value: Any) -> Any:
    """``value`` without what names the request, its time and the machinery behind it."""
    if isinstance(value, dict):
        hidden = ("id", "created", "usage", "metadata", "sglext")
        return {name: without_names(item) for name, item in value.items() if name not in hidden}
    return [without_names(item) for item in value] if isinstance(value, list) else value


def assert_close(found: Any, expected: Any, where: str = "answer") -> None:
    """Equal but for floats, which may differ by 1e-3; names the place that differs."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected:
            assert_close(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert math.isclose(found, expected, abs_tol=1e-3), f"{where}: {found} for {expected}"
    else:
        assert found == expected, f"{where}: {found!r} for {expected!r}"


def test_sixteen_clients_at_once_each_get_their_plain_answer(pair):
    requests = [(CHAT, chat(f"client {'abcdefgh'[: i // 2]} asks {i}", max_tokens=20 + i)) for i in range(CLIENTS)]
    plain, dflash = pair.ask_both(requests)
    assert_close(without_names(dflash), without_names(plain))
    assert [a["usage"]["completion_tokens"] for a in dflash] == [a["usage"]["completion_tokens"] for a in plain]
    assert len({a["choices"][0]["message"]["content"] for a in dflash}) == CLIENTS


@pytest.mark.parametrize(
    "path, body",
    [
        (CHAT, chat("tell me", logprobs=True, top_logprobs=3)),
        (COMPLETIONS, completion("once upon", logprobs=3)),
        (CHAT, chat("and then", logprobs=True, top_logprobs=2, ignore_eos=True, max_tokens=19)),
    ],
    ids=["chat", "completion", "length limit inside a block"],
)
def test_logprobs_are_plain_decodings_one_entry_a_token_streamed_or_not_r06(pair, path, body):
    (plain,), (dflash,) = pair.ask_both([(path, body)])
    assert_close(without_names(dflash), without_names(plain))
    entries = logprob_entries(dflash["choices"][0]["logprobs"])
    assert len(entries) == dflash["usage"]["completion_tokens"] > BLOCK

    streamed = [event["choices"][0] for event in events(pair.served.dflash, path, body) if event["choices"]]
    assert "".join(map(text_of, streamed)) == text_of(dflash["choices"][0])
    pieces = [logprob_entries(choice["logprobs"]) for choice in streamed if choice.get("logprobs")]
    assert_close(sum(pieces, []), entries)
    assert max(map(len, pieces)) > 1, "no event carried more than one token: nothing was accepted"


def logprob_entries(logprobs: dict) -> list:
    """One entry a token: (token, log-probability, alternatives), from either endpoint's layout."""
    if "content" in logprobs:
        entries = logprobs["content"]
        return [[e["token"], e["logprob"], {o["token"]: o["logprob"] for o in e["top_logprobs"]}] for e in entries]
    return list(map(list, zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)))


def test_no_logprob_outlives_a_stop_token_inside_a_block_r06(pair):
    """Four stops at neighbouring places, to meet every column of a block; `ignore_eos` would ignore them too."""
    prompts = ["north", "south wind", "east of it", "the west"]
    requests = []
    for place, prompt in enumerate(prompts):
        whole = pair.served.plain.generate(text=prompt, max_new_tokens=32, sampling={"ignore_eos": True})
        stop = whole["output_ids"][8 + place]
        requests.append((COMPLETIONS, completion(prompt, logprobs=2, stop_token_ids=[stop])))
    plain, dflash = pair.ask_both(requests)
    assert_close(without_names(dflash), without_names(plain))
    for one in dflash:
        assert one["choices"][0]["finish_reason"] == "stop"
        assert len(one["choices"][0]["logprobs"]["tokens"]) == one["usage"]["completion_tokens"] <= 8 + BLOCK


@pytest.mark.parametrize("path", ["/generate", CHAT, COMPLETIONS])
def test_a_stream_adds_up_to_the_whole_answer(pair, path):
    body = {
        "/generate": {"text": "a stream", "sampling_params": {"temperature": 0, "max_new_tokens": 24}},
        CHAT: chat("a stream", max_tokens=24, stream_options={"include_usage": True}),
        COMPLETIONS: completion("a stream", max_tokens=24, stream_options={"include_usage": True}),
    }[path]
    pair.let_drafts_be_right([(path, body)])
    server = pair.served.dflash
    whole = answer(server, path, {name: value for name, value in body.items() if name != "stream_options"})
    parts = list(events(server, path, body))
    assert 3 < len(parts) < 20, "24 tokens, some of them several to an event"
    if path == "/generate":  # every event repeats what came before
        assert all(new["text"].startswith(old["text"]) for old, new in zip(parts, parts[1:], strict=False))
        assert parts[-1]["text"] == whole["text"] and parts[-1]["output_ids"] == whole["output_ids"]
        return
    choices = [part["choices"][0] for part in parts if part["choices"]]
    assert "".join(map(text_of, choices)) == text_of(whole["choices"][0])
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == [whole["choices"][0]["finish_reason"]]
    assert parts[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_schema_and_a_plain_request_share_a_batch_like_plain_decoding_r03(pair):
    requests = [
        (CHAT, chat("who are you", response_format=PERSON_FORMAT, max_tokens=64)),
        (CHAT, chat("who are you not", max_tokens=48, ignore_eos=True)),
    ]
    plain, dflash = pair.ask_both(requests)
    assert_close(without_names(dflash), without_names(plain))
    assert_is_a_person(dflash[0]["choices"][0]["message"]["content"])


def test_drafts_that_a_grammar_forbids_leave_no_trace_in_the_log_r04(pair):
    """The drafter is wrong at one depth of each round, in the middle of the text and behind its end."""
    requests = [(CHAT, chat(f"who are you {i}", response_format=PERSON_FORMAT, max_tokens=64)) for i in range(4)]
    seen = len(pair.served.dflash.log)
    _, dflash = pair.ask_both(requests)
    for answer in dflash:
        assert_is_a_person(answer["choices"][0]["message"]["content"])
    complaints = re.findall(r"(?im)^.*(?:error|fail|reject|terminated|traceback).*$", pair.served.dflash.log[seen:])
    assert complaints == []


def test_the_counts_of_a_request_agree_with_each_other(pair):
    prompts = [f"count {i}" for i in range(BLOCK)]
    pair.let_drafts_be_right([(COMPLETIONS, {"prompt": prompt}) for prompt in prompts])
    for length, prompt in enumerate(prompts, start=21):
        sampling = {"ignore_eos": True}
        meta = pair.served.dflash.generate(text=prompt, max_new_tokens=length, sampling=sampling)["meta_info"]
        histogram = meta["spec_correct_drafts_histogram"]
        rounds, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
        assert meta["completion_tokens"] == length
        assert meta["spec_accept_length"] == pytest.approx(accept_length(meta))
        assert sum(histogram) == rounds
        assert sum(accepted * count for accepted, count in enumerate(histogram)) == correct
        assert meta["spec_num_proposed_drafts"] == rounds * (BLOCK - 1)
        assert meta["spec_accept_rate"] == pytest.approx(correct / (rounds * (BLOCK - 1)))
        # Prefill emits the first token, a round its accepted drafts and one more; the limit may cut the last round.
        assert 0 <= 1 + correct + rounds - meta["completion_tokens"] < BLOCK


def test_the_server_knows_its_accept_length_right_after_a_short_run(pair):
    server = pair.served.dflash
    server.flush_cache()  # starts the counts anew
    meta = server.generate(text="count", max_new_tokens=12, sampling={"ignore_eos": True})["meta_info"]
    # Of this run alone, and without the token of the prefill. The last round may have been cut by the length limit.
    tokens = meta["spec_verify_ct"] + meta["spec_num_correct_drafts"]
    expected = pytest.approx(tokens / meta["spec_verify_ct"])
    assert server.get("/server_info")["internal_states"][0]["avg_spec_accept_length"] == expected
    assert server.get("/v1/loads?include=all")["loads"][0]["speculative"]["accept_length"] == expected


# --- the bundled pair: real answers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm(shared_servers, bundled_pair) -> Server:
    return shared_servers.get(bundled_pair.target, bundled_pair.draft, tool_call_parser="hermes")


def test_a_chat_and_a_completion_answer_the_question(smollm):
    reply = answer(smollm, CHAT, chat(CERTAIN))
    assert "Tokyo" in reply["choices"][0]["message"]["content"]
    assert reply["choices"][0]["finish_reason"] == "stop"
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    text = answer(smollm, COMPLETIONS, completion("The capital of France is", max_tokens=8))["choices"][0]["text"]
    assert "Paris" in text


def test_a_streamed_chat_comes_in_pieces(smollm):
    parts = [event["choices"][0] for event in events(smollm, CHAT, chat("Name three fruits."))]
    assert len(parts) > 5
    assert len("".join(map(text_of, parts))) > 20


def test_two_samples_of_a_greedy_chat_are_the_same(smollm):
    first, second = answer(smollm, CHAT, chat(CERTAIN, n=2))["choices"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["message"]["content"] == second["message"]["content"]


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_schema_gives_json_beside_plain_chats_r03(smollm, temperature):
    ask = chat("Describe Ann, aged 30.", temperature=temperature, response_format=PERSON_FORMAT, max_tokens=100)
    replies = ask_at_once(
        smollm, [(CHAT, ask), (CHAT, chat("Why is the sky blue?")), (CHAT, ask), (CHAT, chat("Name three fruits."))]
    )
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    for text in texts[::2]:
        assert_is_a_person(text)
    for text in texts[1::2]:
        assert len(text) > 20 and not text.startswith("{")


def test_a_required_tool_call_names_the_tool_and_its_arguments_r03(smollm):
    function = {"name": "register", "description": "Registers a person.", "parameters": PERSON, "strict": True}
    tools = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    reply = answer(smollm, CHAT, chat("Register Ann, aged 30, who likes tea.", max_tokens=120, **tools))
    (call, *_) = reply["choices"][0]["message"]["tool_calls"]  # so small a model may go on after it
    assert call["function"]["name"] == "register"
    assert_is_a_person(call["function"]["arguments"])


def test_sixteen_clients_at_once_all_get_an_answer(smollm):
    chats = [chat(f"Tell me about the number {number}.", max_tokens=24) for number in range(CLIENTS)]
    for reply in ask_at_once(smollm, [(CHAT, body) for body in chats]):
        assert reply["choices"][0]["finish_reason"] in ("stop", "length")
        assert len(reply["choices"][0]["message"]["content"]) > 10


def test_the_draft_pays_off(smollm):
    """Of the bundled draft a round must bring more than its one sure token."""
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    meta = smollm.generate(text=text, max_new_tokens=32)["meta_info"]
    assert accept_length(meta) > 1.1


def test_the_server_says_what_it_runs(smollm, bundled_pair):
    info = smollm.get("/server_info")
    assert info["speculative_algorithm"] == "DFLASH"
    assert info["speculative_draft_model_path"] == str(bundled_pair.draft)
    (state,) = info["internal_states"]
    assert state["avg_spec_accept_length"] >= 1
    (model,) = smollm.get("/v1/models")["data"]
    assert model["id"] == str(bundled_pair.target)
    for path in ("/health", "/health_generate"):
        assert http.get(f"{smollm.url}{path}", timeout=60).status_code == 200
