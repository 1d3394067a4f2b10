"""What DFLASH over pipeline stages is refused for, by flag name, and that the relay is switched on otherwise."""

from types import SimpleNamespace

import pytest

from sglang.srt.environ import envs
from sglang.srt.speculative.draft_tree import pipeline_launch
from sglang.srt.utils.launch_error import LaunchError

COMBINATIONS = {
    "--model-impl": {"model_impl": "transformers"},
    "--disaggregation-mode": {"disaggregation_mode": "prefill"},
    "--language-only": {"language_only": True},
    "--enable-dp-attention": {"enable_dp_attention": True},
    "--speculative-adaptive": {"speculative_adaptive": True},
    "--pp-async-batch-depth": {"pp_async_batch_depth": 1},
    "--enable-lora": {"enable_lora": True},
    "--enable-hierarchical-cache": {"enable_hierarchical_cache": True},
    "--enable-return-hidden-states": {"enable_return_hidden_states": True},
    "--enable-torch-compile": {"enable_torch_compile": True},
    "--enable-mixed-chunk": {"enable_mixed_chunk": True},
    "--cuda-graph-backend-prefill": {"cuda_graph_backend_prefill": "breakable"},
    "--startup-weight-load-mode overlap": {"startup_weight_load_mode": "overlap"},
}


@pytest.fixture
def serves(monkeypatch):
    """`serves(architecture, **arguments)`: what serves_stages says; the switch of the relay is restored."""
    monkeypatch.setattr(pipeline_launch, "resolving_view", lambda args: args)

    def ask(architecture: str = "Qwen3ForCausalLM", **changes):
        plain = dict.fromkeys((next(iter(fields)) for fields in COMBINATIONS.values()), False)
        plain |= {"pp_size": 2, "pp_async_batch_depth": 0, "disaggregation_mode": "null"}
        plain |= {"cuda_graph_backend_prefill": None, "model_impl": "auto", **changes}
        target = SimpleNamespace(hf_config=SimpleNamespace(architectures=[architecture]))
        monkeypatch.setattr(pipeline_launch, "model_config_of", lambda args: target)
        return pipeline_launch.serves_stages(SimpleNamespace(**plain))

    with envs.SGLANG_ENABLE_PP_SPEC.override(False):
        yield ask


@pytest.mark.parametrize("architecture", pipeline_launch.ARCHITECTURES)
def test_a_served_family_switches_the_relay_on(serves, architecture):
    assert serves(architecture) and envs.SGLANG_ENABLE_PP_SPEC.get()


def test_one_stage_serves_everything_as_before(serves):
    assert serves("GptOssForCausalLM", pp_size=1, enable_lora=True)
    assert not envs.SGLANG_ENABLE_PP_SPEC.get()


def test_another_family_is_refused_by_name(serves):
    with pytest.raises(LaunchError, match=r"--pp-size 2 with DFLASH.*GptOssForCausalLM.*Give --pp-size 1"):
        serves("GptOssForCausalLM")


@pytest.mark.parametrize("flag", COMBINATIONS)
def test_what_has_not_been_tried_is_refused_by_flag(serves, flag):
    with pytest.raises(LaunchError, match=f"^{flag} with DFLASH and --pp-size 2: .* give --pp-size 1"):
        serves(**COMBINATIONS[flag])


def test_a_pair_that_trees_cannot_serve_is_refused_over_stages():
    with pytest.raises(LaunchError, match="--pp-size 2 with DFLASH: a Domino draft unrolls one path"):
        pipeline_launch.refuse_chain_of_stages(SimpleNamespace(pp_size=2), "a Domino draft unrolls one path")
    pipeline_launch.refuse_chain_of_stages(SimpleNamespace(pp_size=1), "a Domino draft unrolls one path")
