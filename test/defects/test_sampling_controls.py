"""Defects of the pin that the sampling patches repair: each test fails without the patches and passes with them.

Two DFLASH servers run the same random target with a scripted drafter: this fork, and this fork without the patches. The
oracle is plain decoding.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness.logit_processors import ForbidRepeats
from harness.scripted_draft import SCRIPT, scripted_draft_environment, write_script
from harness.server import launch
from harness.unfixed_tree import write_unfixed_tree

PATCHES = {"dflash-target-draws", "penalty-counts", "seeded-sampling"}
FLAGS = dict(dtype="float32", max_running_requests=32, enable_custom_logit_processor=True)
REQUEST = dict(input_ids=[1, 5, 9, 33, 17], max_new_tokens=40)

FAILS = pytest.mark.xfail(strict=True, raises=AssertionError)

CONTROLS = {
    "repetition": dict(sampling=dict(repetition_penalty=1.5)),
    "frequency": dict(sampling=dict(frequency_penalty=1.5)),
    "presence": dict(sampling=dict(presence_penalty=1.5)),
    "min_new_tokens": dict(sampling=dict(min_new_tokens=20, logit_bias={"2": 100.0})),
    "custom_processor": dict(sampling=dict(custom_params={}), custom_logit_processor=ForbidRepeats.to_str()),
}


@pytest.fixture(scope="module")
def unfixed(upstream_wheel, tmp_path_factory) -> str:
    """PYTHONPATH of the fork without the patches."""
    return str(write_unfixed_tree(tmp_path_factory.mktemp("unfixed") / "tree", upstream_wheel, PATCHES))


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=FAILS)], ids=["fork", "without"])
def pythonpath(request, unfixed) -> str:
    """What to put in front of the import path: nothing for the fork, else the tree without the patches."""
    return "" if request.param else unfixed


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("script")
    return scripted_draft_environment(folder, folder / "script.json")


@pytest.fixture(scope="module")
def plain(tiny_pair, environment) -> dict[str, list[int]]:
    """Plain decoding's tokens for every control."""
    with launch(tiny_pair(block_size=4).target, env=environment, **FLAGS) as server:
        return {name: server.generate(**REQUEST, **control)["output_ids"] for name, control in CONTROLS.items()}


@pytest.fixture(scope="module")
def dflash(tiny_pair, environment, pythonpath, plain):
    pair = tiny_pair(block_size=4)
    paths = os.pathsep.join(filter(None, [pythonpath, environment["PYTHONPATH"]]))
    with launch(pair.target, pair.draft, env={**environment, "PYTHONPATH": paths}, **FLAGS) as server:
        yield server


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_has_its_effect_r05(dflash, plain, environment, name):
    write_script(Path(environment[SCRIPT]), [(REQUEST["input_ids"], plain[name])])
    assert dflash.generate(**REQUEST, **CONTROLS[name])["output_ids"] == plain[name]


def test_a_sampled_request_is_sampled_r08(dflash):
    """Upstream samples the first token and takes the most likely one from there on."""
    answers = dflash.generate(input_ids=[REQUEST["input_ids"]] * 40, max_new_tokens=8, sampling=dict(temperature=1.5))
    outputs = {tuple(answer["output_ids"]) for answer in answers}
    assert len(outputs) > len({output[0] for output in outputs})


STARTED = "started"
SEEDED_MIN_P = """
    import torch
    from sglang.srt.layers import sampler
    print("started")
    sampler.multinomial_with_seed = lambda logprobs, seed, positions: logprobs.argmax(dim=1, keepdim=True)
    token = sampler.top_k_top_p_min_p_sampling_from_probs_torch(
        torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([3]), torch.tensor([1.0]), torch.tensor([0.5]), True,
        torch.tensor([7]), torch.tensor([0]),
    )
    assert token.item() == 0
"""
SEEDED_BESIDE_A_FILTER = """
    import torch
    from sglang.srt.layers import sampler
    from sglang.srt.sampling.sampling_params import TOP_K_ALL
    print("started")
    # All noise is on the second column: the second token where it goes by token, the third where it goes by rank.
    sampler.multinomial_with_seed = lambda logprobs, seed, positions: (
        logprobs + torch.tensor([0.0, 9.0, 0.0])
    ).argmax(dim=1, keepdim=True)
    probs, seeds, positions = torch.tensor([[0.5, 0.2, 0.3]]), torch.tensor([7]), torch.tensor([0])
    alone = sampler.sampling_from_probs_torch(probs, seeds, positions)
    beside_greedy = sampler.top_k_top_p_min_p_sampling_from_probs_torch(
        probs.repeat(2, 1), torch.tensor([TOP_K_ALL, 1]), torch.ones(2), torch.zeros(2), False, seeds.repeat(2),
        positions.repeat(2),
    )
    assert alone.tolist() == [1]
    assert beside_greedy.tolist() == [1, 0]
"""
SEEDED_ON_CPU = """
    import torch
    from sglang.srt.layers.sampler import multinomial_with_seed
    print("started")
    logprobs = torch.zeros(64, 4)
    seeds = torch.arange(64)
    drawn = multinomial_with_seed(logprobs, seeds, torch.zeros(64, dtype=torch.int64)).flatten()
    assert set(drawn.tolist()) == {0, 1, 2, 3}
"""
JOINT_FILTERS = """
    import torch
    from types import SimpleNamespace
    from sglang.srt.speculative.dflash_utils import build_speculative_verify_target_probs
    print("started")
    info = SimpleNamespace(
        temperatures=torch.ones(1, 1), top_ks=torch.tensor([3]), top_ps=torch.tensor([0.6]), min_ps=torch.tensor([0.0]),
        need_top_k_sampling=True, need_top_p_sampling=True, need_min_p_sampling=False,
    )
    # Mass before the third token: 0.55 of all, which top-p keeps; 0.69 of what top-k leaves, which it would not.
    logits = torch.tensor([[0.3, 0.25, 0.25, 0.2]]).log()
    probs = build_speculative_verify_target_probs(
        next_token_logits=logits, sampling_info=info, draft_token_num=1, bs=1, max_top_k=3
    )
    assert (probs > 0).sum() == 3
"""
SNIPPETS = {
    "seeded_min_p": SEEDED_MIN_P,
    "seeded_beside_a_filter": SEEDED_BESIDE_A_FILTER,
    "seeded_on_cpu": SEEDED_ON_CPU,
    "joint_filters": JOINT_FILTERS,
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_sampling_function_does_what_plain_decoding_needs_r08(pythonpath, name):
    path = os.pathsep.join(filter(None, [pythonpath, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SNIPPETS[name])],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if STARTED not in done.stdout:
        raise RuntimeError(f"the snippet did not start: {done.stderr}")
    assert done.returncode == 0, done.stderr


UNIT = Path(__file__).resolve().parents[1] / "unit"
# Tests that stand with the code they are about; here they run on the fork without one patch.
UNIT_TESTS = {
    "custom-processor-overlap": {
        "managers/test_delayed_sampling.py": [
            "test_a_processors_step_is_sampled_when_the_last_result_is_processed_r05"
        ],
    },
    "input-embeds-dtype": {"model_executor/test_input_embeds.py": ["test_embeddings_keep_the_type_of_the_model"]},
    "penalty-counts": {
        "draft_tree/test_penalty_counts.py": ["test_a_retracted_request_keeps_its_counts_r05"],
    },
    "verify-graph-memory": {
        "draft_tree/test_verify_buffers.py": [
            "test_memory_of_a_verify_does_not_grow_with_its_width",
            "test_widths_have_their_slots_and_masks_in_one_place",
        ],
    },
}


@pytest.mark.parametrize("patch", UNIT_TESTS)
def test_without_the_patch_its_unit_tests_fail(trees, patch):
    nodes = [f"{UNIT / file}::{test}" for file, tests in UNIT_TESTS[patch].items() for test in tests]
    failing = {name.partition("[")[0] for name in trees.failing_without(patch, *nodes)}
    assert failing == {test for tests in UNIT_TESTS[patch].values() for test in tests}
