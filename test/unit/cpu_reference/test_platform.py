"""What the platform decides for the server: backends, defaults that leave the user's choices alone, ranks on cores."""

import os
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.arg_groups.model_override_base import resolving_view
from sglang.srt.platforms.cpu_reference import ATTENTION_BACKEND, platform
from sglang.srt.platforms.cpu_reference.backend_choice import resolve_backends
from sglang.srt.platforms.cpu_reference.platform import CpuReferencePlatform

OPEN = dict(
    attention_backend=None, prefill_attention_backend=None, decode_attention_backend=None, sampling_backend=None,
    mem_fraction_static=None, max_total_tokens=None, max_running_requests=None, tp_size=1, pp_size=1, dp_size=1,
    nnodes=1,
    disable_overlap_schedule=False, disable_cuda_graph=False, sleep_on_idle=False,
)  # fmt: skip


def arguments(**chosen) -> SimpleNamespace:
    return SimpleNamespace(**{**OPEN, **chosen})


@pytest.fixture
def environment(monkeypatch):
    """A copy of the environment without what the platform may set; the real one comes back afterwards."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    return os.environ


def resolved(**chosen):
    record = arguments(**chosen)
    resolve_backends(record, previous=lambda _: pytest.fail("upstream's step must not run"))
    return resolving_view(record)


def test_open_backends_become_the_reference_ones():
    view = resolved()
    assert (view.attention_backend, view.sampling_backend) == (ATTENTION_BACKEND, "pytorch")


def test_a_backend_that_a_cpu_can_serve_is_kept():
    assert resolved(attention_backend="torch_native").attention_backend == "torch_native"


@pytest.mark.parametrize(
    "field, flag",
    [
        ("attention_backend", "--attention-backend"),
        ("prefill_attention_backend", "--prefill-attention-backend"),
        ("decode_attention_backend", "--decode-attention-backend"),
        ("sampling_backend", "--sampling-backend"),
    ],
)
def test_a_backend_that_needs_an_accelerator_is_refused_with_the_flag_and_what_to_name_instead(field, flag):
    allowed = "pytorch" if field == "sampling_backend" else f"{ATTENTION_BACKEND}, torch_native"
    with pytest.raises(ValueError) as refusal:
        resolved(**{field: "flashinfer"})
    assert f"{flag} flashinfer needs an accelerator" in str(refusal.value)
    assert str(refusal.value).endswith(f"name one of: {allowed}.")


def test_open_arguments_get_defaults_and_overlap_goes_off(environment):
    server = arguments()
    CpuReferencePlatform().apply_server_args_defaults(server)
    assert (server.disable_overlap_schedule, server.disable_cuda_graph, server.sleep_on_idle) == (True, True, True)
    assert server.mem_fraction_static == platform.DEFAULT_MEM_FRACTION
    assert server.max_total_tokens == platform.DEFAULT_MAX_TOTAL_TOKENS
    assert server.max_running_requests == platform.DEFAULT_MAX_RUNNING_REQUESTS


def test_the_users_sizes_stay(environment):
    server = arguments(mem_fraction_static=0.9, max_total_tokens=100, max_running_requests=3)
    CpuReferencePlatform().apply_server_args_defaults(server)
    assert (server.mem_fraction_static, server.max_total_tokens, server.max_running_requests) == (0.9, 100, 3)


@pytest.mark.parametrize(
    "sizes, binding",
    [
        (dict(), None),
        (dict(tp_size=2), "0,1|2,3"),
        (dict(tp_size=2, pp_size=2), "0|1|2|3"),
        (dict(tp_size=3), "0|1|2"),
        (dict(tp_size=6), "0|1|2|3|0|1"),
        (dict(tp_size=4, nnodes=2), "0,1|2,3"),
        (dict(pp_size=2, nnodes=2), "0,1,2,3"),
    ],
)
def test_ranks_share_the_cores_out(environment, sizes, binding):
    CpuReferencePlatform().apply_server_args_defaults(arguments(**sizes))
    assert environment.get("SGLANG_CPU_OMP_THREADS_BIND") == binding


def test_a_binding_by_the_user_stays(environment):
    environment["SGLANG_CPU_OMP_THREADS_BIND"] = "3|2"
    CpuReferencePlatform().apply_server_args_defaults(arguments(tp_size=2))
    assert environment["SGLANG_CPU_OMP_THREADS_BIND"] == "3|2"


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_idle_threads_sleep_unless_the_user_says_otherwise(environment, name):
    CpuReferencePlatform().apply_server_args_defaults(arguments())
    assert environment.pop("GOMP_SPINCOUNT") == "1000"
    environment[name] = "chosen"
    CpuReferencePlatform().apply_server_args_defaults(arguments())
    assert environment[name] == "chosen"
    assert name == "GOMP_SPINCOUNT" or "GOMP_SPINCOUNT" not in environment


def test_dflash_is_the_algorithm_and_our_backend_its_draft_backend():
    here = CpuReferencePlatform()
    assert here.supports_speculative_algorithm("dflash") and not here.supports_speculative_algorithm("EAGLE")
    assert here.supports_speculative_draft_attention_backend("DFLASH", ATTENTION_BACKEND)
    assert not here.supports_speculative_draft_attention_backend("DFLASH", "triton")


def test_a_loaded_model_takes_no_fused_norm_and_rope():
    module = torch.nn.Linear(2, 2)
    module.use_table_qk_norm_rope = True
    CpuReferencePlatform().post_load_model(torch.nn.Sequential(torch.nn.ReLU(), module))
    assert module.use_table_qk_norm_rope is False
