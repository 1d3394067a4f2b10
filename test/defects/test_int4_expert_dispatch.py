"""R29: INT4 experts with a dispatch backend that has no runner for them are refused before weights are loaded."""

from types import SimpleNamespace

import pytest

from sglang.srt.arg_groups import moe_hook
from sglang.srt.runtime_context import override_platform
from sglang.srt.utils import expert_dispatch
from sglang.srt.utils.expert_dispatch import marlin_expert_bits
from sglang.srt.utils.launch_error import LaunchError

PATCH = "int4-expert-dispatch"
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}


def quantization(weights=None, **fields):
    group = {"targets": ["Linear"], "input_activations": None, "weights": {**INT4, **(weights or {})}}
    group |= {name: fields.pop(name) for name in ("input_activations",) if name in fields}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **fields}


def model(quantized=None, experts: int | None = 384, nested: bool = False):
    """A config like Kimi K2.6's (``nested``: with the language model's own inside), as far as it is read."""
    text = SimpleNamespace(n_routed_experts=experts, quantization_config=quantized)
    return SimpleNamespace(text_config=text) if nested else text


def launch(monkeypatch, hf_config, platform=None, **flags) -> None:
    view = SimpleNamespace(
        moe_a2a_backend="deepep", moe_runner_backend="auto", model_path="moonshotai/Kimi-K2.6", tp_size=8, ep_size=8
    )
    vars(view).update(flags)
    monkeypatch.setattr(expert_dispatch, "resolved_view", lambda _: view)
    monkeypatch.setattr(expert_dispatch, "model_config_of", lambda _: SimpleNamespace(hf_config=hf_config))
    with override_platform(**{"is_cuda": True, "is_sm100": False, **(platform or {})}):
        expert_dispatch.check_expert_dispatch(view)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("a2a", ["deepep", "mooncake", "flashinfer"])
@pytest.mark.parametrize("runner", ["auto", "marlin"])
def test_r29_int4_experts_with_a_dispatch_backend_are_refused(nested, a2a, runner, monkeypatch):
    config = model(quantization(), nested=nested)
    with pytest.raises(LaunchError, match=f"--moe-a2a-backend {a2a}.*INT4.*Leave the flag out: --ep-size 8 alone"):
        launch(monkeypatch, config, moe_a2a_backend=a2a, moe_runner_backend=runner)


@pytest.mark.parametrize(
    "config, platform, flags",
    [
        (model(quantization()), {}, {"moe_a2a_backend": "none"}),
        (model(quantization()), {}, {"moe_runner_backend": "triton"}),
        (model(quantization()), {"is_sm100": True}, {}),
        (model(quantization()), {"is_cuda": False}, {}),
        (model(None), {}, {}),
        (model(quantization(), experts=None), {}, {}),
    ],
)
def test_r29_other_launches_go_on(config, platform, flags, monkeypatch):
    launch(monkeypatch, config, platform, **flags)


@pytest.mark.parametrize(
    "quantized, bits",
    [
        (quantization(), 4),
        (quantization({"num_bits": 8, "strategy": "channel"}), 8),
        (quantization({"type": "float"}), None),
        (quantization({"strategy": "block"}), None),
        (quantization({"dynamic": True}), None),
        (quantization(input_activations={"num_bits": 8}), None),
        (quantization(ignore=["re:.*mlp.experts.*"]), None),
        (quantization(ignore=["re:.*shared_experts.*", "lm_head"]), 4),
        ({"quant_method": "fp8"}, None),
    ],
)
def test_r29_experts_that_run_on_marlin(quantized, bits):
    assert marlin_expert_bits(model(quantized)) == bits


def test_r29_argument_parsing_asks(monkeypatch):
    class Reached(Exception):
        pass

    def reached(_):
        raise Reached

    monkeypatch.setattr(moe_hook, "check_expert_dispatch", reached)
    with pytest.raises(Reached):
        moe_hook.handle_a2a_moe(SimpleNamespace())


def test_r29_upstream_has_no_runner_for_the_pair():
    """The reason for the refusal: once the pair has a runner, the check has to go."""
    from sglang.srt.layers.moe.moe_runner import marlin  # noqa: F401  (registers its runners)
    from sglang.srt.layers.moe.moe_runner.base import FusedOpPool

    assert FusedOpPool.get_fused_func("none", "marlin") is not None
    assert [FusedOpPool.get_fused_func(a2a, "marlin") for a2a in ("deepep", "mooncake", "flashinfer")] == [None] * 3


def test_without_the_patch_nothing_asks(trees):
    failing = trees.failing_without(PATCH, f"{__file__}::test_r29_argument_parsing_asks")
    assert set(failing) == {"test_r29_argument_parsing_asks"}
