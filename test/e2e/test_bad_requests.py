"""Wrong requests are answered with HTTP 400 and a reason, and the server goes on serving everyone else.

Each request here is wrong on its own; a good one follows it and must get the answer that it got before. With one
server for the whole table, a request that ends the model process fails its own test and every later one.
"""

import json

import pytest

PROMPT = [5, 6, 7, 8]
VOCAB_SIZE = 128
CONTEXT_LENGTH = 512
GOOD = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 6, "temperature": 0}}


@pytest.fixture(scope="module")
def server(shared_servers, tiny_pair):
    pair = tiny_pair()
    return shared_servers.get(pair.target, pair.draft, dtype="float32")


@pytest.fixture(scope="module")
def good_answer(server):
    return server.post("/generate", GOOD).json()["output_ids"]


def native(sampling: dict | None = None, **fields) -> tuple[str, dict]:
    body = {**GOOD, "sampling_params": {**GOOD["sampling_params"], **(sampling or {})}, **fields}
    return "/generate", {name: value for name, value in body.items() if value is not None}


def text(prompt) -> tuple[str, dict]:
    return native(input_ids=None, text=prompt)


def logprobs(**fields) -> tuple[str, dict]:
    return native(return_logprob=True, **fields)


def chat(**fields) -> tuple[str, dict]:
    message = {"role": "user", "content": "hi"}
    return "/v1/chat/completions", {"model": "default", "messages": [message], "max_tokens": 6, **fields}


def completion(**fields) -> tuple[str, dict]:
    return "/v1/completions", {"model": "default", "prompt": "hi", "max_tokens": 6, **fields}


def schema(definition: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": definition}}


# Each case: the request, and a part of the message that tells its sender what to change.
BAD_REQUESTS = {
    # prompts
    "token id behind the vocabulary": (native(input_ids=[5, VOCAB_SIZE]), "token id 128"),
    "huge token id": (native(input_ids=[10**9]), "token id 1000000000"),
    "token id beyond 64 bits": (native(input_ids=[2**70]), "input_ids"),
    "negative token id": (native(input_ids=[5, -1]), "token id -1"),
    "token id that is no integer": (native(input_ids=[5.5]), "input_ids"),
    "token id that is text": (native(input_ids=["a"]), "input_ids"),
    "no token": (native(input_ids=[]), "input_ids cannot be empty"),
    "one prompt of two without tokens": (native(input_ids=[[5], []]), "no tokens"),
    "one prompt of two behind the vocabulary": (native(input_ids=[[5], [999]]), "token id 999"),
    "empty text": (text(""), "no tokens"),
    "text that is a number": (text(5), "text"),
    "no prompt at all": (native(input_ids=None), "should be provided"),
    "prompt longer than the context": (native(input_ids=[5] * 600), "context length (512"),
    "prompt and answer longer than the context": (native({"max_new_tokens": 50}, input_ids=[5] * 500), "550"),
    "embeddings beside the radix cache": (native(input_ids=None, input_embeds=[[0.5] * 64]), "--disable-radix-cache"),
    "no embedding": (native(input_ids=None, input_embeds=[]), "input_embeds is empty"),
    "embedding overrides": (native(positional_embed_overrides={"positions": [0]}), "positional_embed_overrides"),
    # lengths and stops
    "negative length": (native({"max_new_tokens": -1}), "max_new_tokens must be at least 0"),
    "length that is no integer": (native({"max_new_tokens": 2.5}), "2.5"),
    "length beyond the context": (native({"max_new_tokens": 10**6}), "maximum context length"),
    "minimum above the maximum": (native({"min_new_tokens": 7}), "min_new_tokens"),
    "stop id behind the vocabulary": (native({"stop_token_ids": [10**6]}), "stop_token_ids contains 1000000"),
    "stop id behind the vocabulary with a minimum": (
        native({"stop_token_ids": [10**6], "min_new_tokens": 3}),
        "stop_token_ids contains 1000000",
    ),
    "negative stop id": (native({"stop_token_ids": [-200], "min_new_tokens": 3}), "stop_token_ids contains -200"),
    "stop ids that are no list": (native({"stop_token_ids": 5}), "expected a sequence"),
    "stop pattern that does not parse": (native({"stop_regex": ["("]}), "stop_regex '('"),
    # sampling
    "negative temperature": (native({"temperature": -1}), "temperature"),
    "temperature that is text": (native({"temperature": "hot"}), "hot"),
    "top_p of zero": (native({"top_p": 0}), "top_p"),
    "top_k of zero": (native({"temperature": 1, "top_k": 0}), "top_k"),
    "top_k beyond 32 bits": (native({"temperature": 1, "top_k": 2**31}), "top_k"),
    "min_p above one": (native({"min_p": 2}), "min_p"),
    "frequency penalty out of range": (native({"frequency_penalty": 3}), "frequency_penalty"),
    "repetition penalty of zero": (native({"repetition_penalty": 0}), "repetition_penalty"),
    "repetition penalty next to zero": (native({"repetition_penalty": 1e-40}), "repetition_penalty"),
    "bias of an id behind the vocabulary": (native({"logit_bias": {"128": 1.0}}), "logit_bias"),
    "bias of a word": (native({"logit_bias": {"word": 1.0}}), "word"),
    "infinite bias": (native({"temperature": 1, "logit_bias": {"5": 1e39}}), "logit_bias[5]"),
    "seed beyond 64 bits": (native({"sampling_seed": 2**70}), "expected i64"),
    "zero samples": (native({"n": 0}), "n must be an integer of at least 1"),
    "unknown sampling field": (native({"tempreture": 1}), "tempreture"),
    "sampling parameters that are a list": (native(sampling_params=[{}]), "sampling_params is a list"),
    "list shorter than the batch": (
        native(input_ids=[[5], [6]], sampling_params=[{"max_new_tokens": 2}]),
        "sampling_params has 1 values for 2 prompts",
    ),
    # log-probabilities
    "more top log-probabilities than tokens": (logprobs(top_logprobs_num=VOCAB_SIZE + 1), "between 0 and 128"),
    "top log-probabilities of the prompt too": (
        logprobs(logprob_start_len=0, top_logprobs_num=10**6),
        "between 0 and 128",
    ),
    "negative top log-probabilities": (logprobs(top_logprobs_num=-1), "top_logprobs_num"),
    "log-probability of an unknown token": (logprobs(token_ids_logprob=[VOCAB_SIZE]), "token id 128"),
    "negative start of log-probabilities": (logprobs(logprob_start_len=-5), "logprob_start_len"),
    "start of log-probabilities behind the prompt": (logprobs(logprob_start_len=10**6), "logprob_start_len"),
    # grammars
    "pattern that does not parse": (native({"regex": "("}), "regex"),
    "pattern outside the vocabulary": (native({"regex": "\u4e2d+"}), "no token of this model"),
    "schema that is no JSON": (native({"json_schema": "{"}), "json"),
    "schema of an unknown type": (native({"json_schema": '{"type": "foo"}'}), "foo"),
    "grammar that does not parse": (native({"ebnf": "root ::= ("}), "ebnf"),
    "grammar that never ends": (native({"ebnf": 'root ::= root "a"'}), "no token of this model"),
    "two grammars": (native({"regex": "a", "ebnf": 'root ::= "a"'}), "Only one of"),
    "structural tag that is no JSON": (native({"structural_tag": "{"}), "structural_tag"),
    # features that this server does not have
    "hidden states": (native(return_hidden_states=True), "--enable-return-hidden-states"),
    "logit processor": (native(custom_logit_processor="80049500"), "--enable-custom-logit-processor"),
    "unknown adapter": (native(lora_path="nobody"), "nobody"),
    "unknown session": (native(session_params={"id": "nobody"}), "session id nobody does not exist"),
    "session field that does not exist": (native(session_params={"identity": "x"}), "identity"),
    # the OpenAI endpoints
    "chat without messages": (chat(messages=[]), "Messages cannot be empty"),
    "chat role that does not exist": (chat(messages=[{"role": "nobody", "content": "hi"}]), "nobody"),
    "chat without content": (chat(messages=[{"role": "user", "content": None}]), "content"),
    "chat longer than the context": (chat(messages=[{"role": "user", "content": "a" * 5000}]), "context length"),
    "chat temperature": (chat(temperature=-1), "temperature"),
    "chat length": (chat(max_tokens=-1), "max_new_tokens"),
    "chat top log-probabilities": (chat(logprobs=True, top_logprobs=10**6), "top_logprobs_num"),
    "chat bias": (chat(logit_bias={"99999": 1}), "99999"),
    "chat stop id": (chat(stop_token_ids=[10**6], min_tokens=3), "stop_token_ids"),
    "chat samples": (chat(n=0), "n must be an integer of at least 1"),
    "chat response format": (chat(response_format={"type": "foo"}), "foo"),
    "chat schema": (chat(response_format=schema({"type": "foo"})), "foo"),
    "chat tool choice": (chat(tool_choice="required"), "Tools cannot be empty"),
    "chat template argument": (chat(chat_template_kwargs={"tokenize": False}), "chat_template_kwargs"),
    "chat adapter": (chat(model="default:nobody"), "nobody"),
    "image for a text model": (
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]),
        "image_url",
    ),
    "completion of an unknown id": (completion(prompt=[5, 999]), "token id 999"),
    "completion of a negative id": (completion(prompt=[-3]), "token id -3"),
    "completion of nothing": (completion(prompt=""), "Prompt cannot be empty"),
    "completion log-probabilities": (completion(logprobs=10**6), "top_logprobs_num"),
    "completion length": (completion(max_tokens=-1), "max_tokens must be positive"),
    "image for the native API of a text model": (native(image_data="data:x"), "reads text only"),
    # text endpoints
    "negative id to detokenize": (("/detokenize", {"tokens": [5, -1]}), "token id -1"),
    "id beyond the vocabulary to detokenize": (("/detokenize", {"tokens": [[5], [999]]}), "0 to 127"),
    "parser of tool calls that does not exist": (
        ("/parse_function_call", {"text": "hi", "tools": [], "tool_call_parser": "nobody"}),
        "tool_call_parser 'nobody' does not exist",
    ),
    "parser of reasoning that does not exist": (
        ("/separate_reasoning", {"text": "hi", "reasoning_parser": "nobody"}),
        "reasoning_parser 'nobody' does not exist",
    ),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_bad_request_is_answered_and_the_server_goes_on(case, server, good_answer):
    (path, body), hint = BAD_REQUESTS[case]
    response = server.post(path, body)
    assert response.status_code == 400, response.text
    message = json.dumps(response.json(), ensure_ascii=False)
    assert hint in message
    assert server.post("/generate", GOOD).json()["output_ids"] == good_answer


def test_body_that_is_no_json(server, good_answer):
    response = server.post("/generate", {}, data="{", headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert server.post("/generate", GOOD).json()["output_ids"] == good_answer


def test_bad_requests_do_not_disturb_those_that_run(server):
    """A bad request beside good ones, all at once: only its sender hears of it."""
    good = {"input_ids": PROMPT, "max_new_tokens": 24}
    alone = server.generate(**good)["output_ids"]
    for bad in ({"input_ids": [999]}, {"input_ids": PROMPT, "sampling": {"regex": "("}}):
        with pytest.raises(AssertionError, match="answered 400"):
            server.generate_concurrently([good, bad, good])
    assert server.generate_concurrently([good, good])[1]["output_ids"] == alone


def test_the_same_values_just_inside_their_range_are_served(server):
    answer = server.generate(
        input_ids=[0, VOCAB_SIZE - 1],
        sampling={"temperature": 1.0, "top_k": 2**31 - 1, "stop_token_ids": [VOCAB_SIZE - 1], "min_new_tokens": 2},
        return_logprob=True,
        top_logprobs_num=VOCAB_SIZE,
        logprob_start_len=0,
    )
    assert len(answer["meta_info"]["output_top_logprobs"][0]) == VOCAB_SIZE


def test_a_server_with_more_features_refuses_what_it_cannot_use(shared_servers, tiny_pair):
    pair = tiny_pair()
    server = shared_servers.get(
        pair.target,
        pair.draft,
        dtype="float32",
        disable_radix_cache=True,
        enable_custom_logit_processor=True,
    )
    good_answer = server.post("/generate", GOOD).json()["output_ids"]
    bad_requests = [
        (native(custom_logit_processor='{"callable": "zz"}'), "custom_logit_processor cannot be read"),
        (native(custom_logit_processor='{"callable": "80049500000000"}'), "custom_logit_processor cannot be read"),
        (native(input_ids=None, input_embeds=[[0.5] * 3]), "hidden size is 64"),
        (native(input_ids=None, input_embeds=[[0.5] * 64, [0.5]]), "hidden size is 64"),
        (native(input_ids=None, input_embeds=[[0.5] * 64] * CONTEXT_LENGTH), "context length is 512"),
    ]
    for (path, body), hint in bad_requests:
        response = server.post(path, body)
        assert response.status_code == 400, response.text
        assert hint in response.text
        assert server.post("/generate", GOOD).json()["output_ids"] == good_answer
