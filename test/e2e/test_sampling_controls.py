"""Every sampling control on DFLASH, over HTTP: the tokens of plain decoding, or its distribution.

Two servers run the same random target, one of them with DFLASH and a scripted drafter that is right to a depth which
changes from round to round. So drafts are accepted and rejected at every depth, and each control meets both.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from scipy.stats import chi2_contingency

from harness.logit_processors import FailsAt, ForbidRepeats, ReturnsOneRow
from harness.plain_and_dflash import TOKENS, PlainAndDflash, assert_same_tokens, prompts
from harness.scripted_draft import EVERY_WIDTH
from harness.tiny_tokenizer import EOS_ID

SIGNIFICANCE = 1e-6
LETTERS = "[a-z]{40}"
CONTROLS = {
    "frequency_penalty": dict(frequency_penalty=1.5),
    "presence_penalty": dict(presence_penalty=1.5),
    "repetition_penalty": dict(repetition_penalty=1.5),
    "reward_for_repeating": dict(repetition_penalty=0.6, frequency_penalty=-0.5),
    "all_penalties": dict(frequency_penalty=0.8, presence_penalty=0.4, repetition_penalty=1.3),
    "logit_bias": dict(logit_bias={"35": 3.0, "70": -100.0}),
    "min_new_tokens": dict(min_new_tokens=21, logit_bias={str(EOS_ID): 100.0}),
    "grammar": dict(regex=LETTERS),
    "ebnf": dict(ebnf="root ::= word{40}\nword ::= [a-f] | [u-z]"),
    "grammar_and_penalties": dict(regex=LETTERS, repetition_penalty=1.4, presence_penalty=0.7),
}
SAMPLED = {
    "temperature": dict(temperature=0.9),
    "top_k": dict(temperature=1.0, top_k=8),
    "top_p": dict(temperature=1.0, top_p=0.6),
    "min_p": dict(temperature=1.0, min_p=0.2),
    "all_and_penalties": dict(
        temperature=1.2, top_k=12, top_p=0.9, min_p=0.05, frequency_penalty=0.7, repetition_penalty=1.2
    ),
}
TREE = {  # of another width each round; every third is a step of plain decoding
    "speculative_dflash_tree_budget": "auto",
    "speculative_dflash_widths": [1, 4, 12],
    "speculative_dflash_tree_topk": 4,
    "env": {EVERY_WIDTH: "1"},
}


def served(shared_servers, tiny_pair, folder, **flags) -> PlainAndDflash:
    return PlainAndDflash(shared_servers, tiny_pair(block_size=4), folder, enable_custom_logit_processor=True, **flags)


@pytest.fixture(scope="module")
def pair(shared_servers, tiny_pair, tmp_path_factory):
    return served(shared_servers, tiny_pair, tmp_path_factory.mktemp("controls"))


@pytest.fixture(scope="module")
def tree_pair(shared_servers, tiny_pair, tmp_path_factory):
    return served(shared_servers, tiny_pair, tmp_path_factory.mktemp("tree"), **TREE)


@pytest.fixture(scope="module", params=["chain", "tree"])
def any_pair(request):
    return request.getfixturevalue({"chain": "pair", "tree": "tree_pair"}[request.param])


@pytest.fixture(scope="module", params=[{}, TREE], ids=["chain", "tree"])
def seeded_pair(request, shared_servers, tiny_pair, tmp_path_factory):
    """Servers that honour seeds, as plain decoding does only with this flag."""
    folder = tmp_path_factory.mktemp("seeded")
    return served(shared_servers, tiny_pair, folder, enable_deterministic_inference=True, **request.param)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_gives_plain_decodings_tokens_r05(pair, name):
    requests = [{"input_ids": prompt, "sampling": CONTROLS[name]} for prompt in prompts(2, seed=len(name))]
    plain, dflash = pair.run(requests)
    assert_same_tokens(plain, dflash, pair.least_accepted)
    without, _ = pair.run([{"input_ids": request["input_ids"]} for request in requests])
    assert [answer["output_ids"] for answer in without] != [answer["output_ids"] for answer in plain]


def test_the_end_comes_right_after_min_new_tokens_r05(pair):
    _, (answer,) = pair.run([{"input_ids": prompts(1, seed=4)[0], "sampling": CONTROLS["min_new_tokens"]}])
    assert answer["meta_info"]["completion_tokens"] == 22
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS_ID}


def test_a_custom_processor_sees_every_token_before_its_own_r05(any_pair):
    processor = {"custom_logit_processor": ForbidRepeats.to_str(), "sampling": {"custom_params": {}}}
    requests = [{"input_ids": prompt, **processor} for prompt in prompts(3, seed=5)]
    requests.append({"input_ids": prompts(1, seed=6)[0], "sampling": CONTROLS["repetition_penalty"]})
    plain, dflash = any_pair.run(requests)
    assert_same_tokens(plain, dflash, any_pair.least_accepted)
    for answer in dflash[:3]:
        assert len(set(answer["output_ids"])) == len(answer["output_ids"]) > 20


@pytest.mark.parametrize("side", ["plain", "dflash"])
def test_a_failing_processor_ends_its_own_request_alone(any_pair, side):
    """Four requests share the processor, and a fifth the batch: two fail, early and late, two are served to the end."""
    server = getattr(any_pair, side)
    inputs = prompts(5, seed=16)
    expected = [server.generate(input_ids=prompt, max_new_tokens=TOKENS)["output_ids"] for prompt in inputs]
    params = [{"tokens": 0}, {"tokens": 20}, {"tokens": 1000}, {"tokens": 1000}]
    bodies = [{"sampling_params": {"custom_params": p}, "custom_logit_processor": FailsAt.to_str()} for p in params]
    bodies += [{"sampling_params": {}}]
    for prompt, body in zip(inputs, bodies, strict=True):
        body |= {"input_ids": prompt}
        body["sampling_params"] |= {"temperature": 0, "max_new_tokens": TOKENS}
    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(lambda body: server.post("/generate", body), bodies))
    assert [answer.status_code for answer in answers] == [400, 400, 200, 200, 200]
    assert all("FailsAt failed: ArithmeticError: as it was told" in answer.text for answer in answers[:2])
    assert [answer.json()["output_ids"] for answer in answers[2:]] == expected[2:]


@pytest.mark.parametrize("side", ["plain", "dflash"])
@pytest.mark.parametrize(
    "processor, reason", [(FailsAt, "TypeError: 'NoneType'"), (ReturnsOneRow, "must return a tensor of shape")]
)
def test_a_processor_that_never_works_is_a_bad_request(pair, side, processor, reason):
    server = getattr(pair, side)
    body = {"input_ids": prompts(1, seed=17)[0], "custom_logit_processor": processor.to_str()}
    answer = server.post("/generate", body)
    assert answer.status_code == 400 and reason in answer.text, answer.text


def test_requests_with_different_controls_share_a_batch_r05(any_pair):
    """Of different lengths, so that the batch is filtered and merged while penalties are in it."""
    controls = [{}, *CONTROLS.values()]
    requests = [
        {"input_ids": prompt, "sampling": sampling, "max_new_tokens": 22 + 4 * (index % 7)}
        for index, (prompt, sampling) in enumerate(zip(prompts(2 * len(controls), seed=7), 2 * controls, strict=True))
    ]
    assert_same_tokens(*any_pair.run(requests), any_pair.least_accepted)


@pytest.mark.parametrize("sampling", [dict(temperature=1.0, top_k=1), dict(top_p=1e-4), dict(temperature=1e-6)])
def test_degenerate_sampling_is_greedy_also_beside_sampled_requests_r08(pair, sampling):
    prompt, *others = prompts(4, seed=8)
    (greedy,), _ = pair.run([{"input_ids": prompt}])
    edge = {"input_ids": prompt, "sampling": {"temperature": 1.0, **sampling}}
    sampled = [{"input_ids": other, "sampling": {"temperature": 1.3}} for other in others]
    pair.propose([(prompt, greedy["output_ids"])])
    answers = pair.dflash.generate_concurrently([{"max_new_tokens": TOKENS, **r} for r in (edge, *sampled)])
    assert answers[0]["output_ids"] == greedy["output_ids"]


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_tokens_have_plain_decodings_distribution_r08(any_pair, name):
    """20,000 tokens per server, in short runs from one prompt; the sets of runs are compared as a whole."""
    prompt = prompts(1, seed=9)[0]
    arguments = dict(input_ids=[prompt] * 5000, sampling=SAMPLED[name], max_new_tokens=4)
    plain = [tuple(answer["output_ids"]) for answer in any_pair.plain.generate(**arguments)]
    likely = Counter(run[:2] for run in plain).most_common(1)[0][0]
    any_pair.propose([(prompt, list(max(plain, key=lambda run: (run[:2] == likely, plain.count(run)))))])
    answers = any_pair.dflash.generate(**arguments)
    dflash = [tuple(answer["output_ids"]) for answer in answers]

    rounds = sum(answer["meta_info"].get("spec_verify_ct", 0) for answer in answers)
    assert (
        sum(map(len, dflash)) - len(dflash) > (1.05 if any_pair.every_width else 1.1) * rounds
    )  # drafts were accepted: a round emits more than one
    assert len(set(dflash)) > 10
    for length in (1, 2, 4):
        observed = [Counter(run[:length] for run in runs) for runs in (plain, dflash)]
        common = [run for run, count in (observed[0] + observed[1]).items() if count >= 20]
        table = [[*(counts[run] for run in common), 5000 - sum(counts[run] for run in common)] for counts in observed]
        table = [row for row in zip(*table, strict=True) if sum(row)]
        assert chi2_contingency(table).pvalue > SIGNIFICANCE, f"{name}, first {length} tokens"


@pytest.mark.parametrize("sampling", [{}, CONTROLS["all_penalties"]], ids=["greedy", "penalties"])
def test_one_logprob_per_token_equal_to_plain_decodings_r06(any_pair, sampling):
    logprobs = {"return_logprob": True, "top_logprobs_num": 3, "sampling": sampling}
    plain, dflash = any_pair.run([{"input_ids": prompt, **logprobs} for prompt in prompts(2, seed=10)])
    assert_same_tokens(plain, dflash, any_pair.least_accepted)
    for expected, answer in zip(plain, dflash, strict=True):
        assert_same_logprobs(expected, answer)


def assert_same_logprobs(plain, dflash) -> None:
    expected, found = (answer["meta_info"]["output_token_logprobs"] for answer in (plain, dflash))
    assert [token for _, token, _ in found] == dflash["output_ids"]
    assert [value for value, _, _ in found] == pytest.approx([value for value, _, _ in expected], abs=1e-3)
    for one, other in zip(*(answer["meta_info"]["output_top_logprobs"] for answer in (plain, dflash)), strict=True):
        assert [token for _, token, _ in one] == [token for _, token, _ in other]


def test_penalties_survive_retraction_r05(any_pair):
    """Requests are thrown out and come back every few steps; their counts come back with them."""
    requests = [{"input_ids": prompt, "sampling": CONTROLS["all_penalties"]} for prompt in prompts(6, seed=15)]
    plain, _ = any_pair.run(requests)
    dflash = any_pair.retracting.generate_concurrently([{**r, "max_new_tokens": TOKENS} for r in requests])
    assert any_pair.retracting.log.count("Testing retraction") > 2
    assert_same_tokens(plain, dflash, any_pair.least_accepted)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_seed_gives_plain_decodings_tokens_r08(seeded_pair, name):
    requests = [
        {"input_ids": prompt, "sampling": {**SAMPLED[name], "sampling_seed": seed}}
        for seed, prompt in enumerate(prompts(3, seed=11))
    ]
    plain, dflash = seeded_pair.run(requests)
    assert_same_tokens(plain, dflash, seeded_pair.least_accepted)
    again = seeded_pair.dflash.generate(**{**requests[0], "max_new_tokens": TOKENS})
    assert again["output_ids"] == plain[0]["output_ids"]
    other = seeded_pair.dflash.generate(
        input_ids=requests[0]["input_ids"],
        max_new_tokens=TOKENS,
        sampling={**SAMPLED[name], "sampling_seed": 1234},
    )
    assert other["output_ids"] != again["output_ids"]


def test_a_seed_gives_plain_decodings_tokens_beside_requests_of_every_other_kind_r08(seeded_pair):
    """A batch filters where any of its requests does, and drew other tokens for all of them then."""
    kinds = [{**sampling, "sampling_seed": 9} for sampling in SAMPLED.values()] + [{}]
    requests = [
        {"input_ids": prompt, "sampling": sampling}
        for prompt, sampling in zip(prompts(len(kinds), seed=16), kinds, strict=True)
    ]
    assert_same_tokens(*seeded_pair.run(requests), seeded_pair.least_accepted)


def test_logprobs_of_seeded_requests_are_plain_decodings_r06(seeded_pair):
    sampling = {**SAMPLED["temperature"], "sampling_seed": 3}
    request = {"input_ids": prompts(1, seed=12)[0], "sampling": sampling, "return_logprob": True, "top_logprobs_num": 3}
    (plain,), (dflash,) = seeded_pair.run([request])
    assert_same_logprobs(plain, dflash)


def test_a_seed_together_with_the_grammar_and_a_custom_processor_r08(seeded_pair):
    processor = {"custom_logit_processor": ForbidRepeats.to_str()}
    seeded = {"temperature": 1.0, "sampling_seed": 5}
    plain, dflash = seeded_pair.run(
        [
            {"input_ids": prompts(1, seed=13)[0], "sampling": {**seeded, "custom_params": {}}, **processor},
            {"input_ids": prompts(1, seed=14)[0], "sampling": {**seeded, "regex": LETTERS}},
        ]
    )
    assert_same_tokens(plain, dflash, seeded_pair.least_accepted)
