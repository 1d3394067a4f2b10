"""R31, R32: FlashInfer is the default only where it can get its kernels, and builds for the target that nvcc has.

Toolkits are folders with a small nvcc script; no GPU is involved.
"""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang.srt.arg_groups import model_override_base, overrides
from sglang.srt.entrypoints import engine
from sglang.srt.runtime_context import override_platform
from sglang.srt.utils import common, flashinfer_toolchain
from sglang.srt.utils.flashinfer_toolchain import arch_list, find_toolkit, flashinfer_problem, read_toolkit

PATCH = "flashinfer-toolchain"
SM90, SM100, SM103, SM120, SM121 = (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)
DEFAULTS = {SM90: "9.0a", SM100: "10.0a", SM120: "12.0a", SM121: "12.1a"}


def make_toolkit(home: Path, release: str | None = "13.0", *, exits: int = 0, curand: bool = True) -> Path:
    """A toolkit whose nvcc prints ``release`` (None: something else) and exits with ``exits``."""
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    line = f"Cuda compilation tools, release {release}, V{release}.88" if release else "hello"
    nvcc.write_text(f"#!/bin/sh\necho '{line}'\nexit {exits}\n")
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    if curand:
        (home / "include").mkdir()
        (home / "include" / "curand_kernel.h").touch()
    return home


@pytest.fixture
def no_other_toolkit(monkeypatch, tmp_path):
    """Nothing in PATH, /usr/local or the environment: a test brings its own toolkits."""
    monkeypatch.setattr(flashinfer_toolchain, "DEFAULT_CUDA_HOME", tmp_path / "usr-local" / "cuda")
    for name in ("CUDA_HOME", "CUDA_PATH", "FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_JIT"):
        monkeypatch.setenv(name, "")  # so that it is absent again afterwards, whatever the code under test sets
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(flashinfer_toolchain, "prebuilt_architectures", lambda: frozenset())
    flashinfer_toolchain._warn_once.cache_clear()


def problem(capability, home: Path, use="attention", prebuilt=(), **environment) -> str | None:
    return flashinfer_problem(capability, use, read_toolkit(home), frozenset(prebuilt), environment)


# nvcc of release R on the GPU: the release that the verdict asks for, None where it is fine.
VERDICTS = {
    ("12.6", SM90): None,
    ("12.6", SM120): "12.8",
    ("12.8", SM100): None,
    ("12.8", SM103): "12.9",
    ("12.8", SM120): None,
    ("12.8", SM121): "12.9",
    ("12.9", SM121): None,
    ("13.0", SM120): None,
    ("13.3", SM121): None,
}


@pytest.mark.parametrize("release, capability", VERDICTS)
def test_verdict_names_toolkit_gpu_and_need(release, capability, tmp_path, no_other_toolkit):
    home = make_toolkit(tmp_path / "toolkit", release)
    verdict, needed = problem(capability, home), VERDICTS[release, capability]
    if needed is None:
        assert verdict is None
    else:
        assert str(home) in verdict and release in verdict
        assert f"{capability[0]}.{capability[1]} needs {needed} or newer" in verdict


def test_a_newer_toolkit_beside_it_is_proposed(tmp_path, no_other_toolkit):
    old = make_toolkit(tmp_path / "usr-local" / "cuda-12.6", "12.6")
    new = make_toolkit(tmp_path / "usr-local" / "cuda-12.9", "12.9")
    assert f"set CUDA_HOME={new}" in problem(SM120, old)


@pytest.mark.parametrize(
    "toolkit, finding",
    [
        (dict(release=None), "does not tell its release"),
        (dict(release="13.0", exits=1), "cannot be run"),
    ],
)
def test_a_compiler_that_does_not_work(toolkit, finding, tmp_path, no_other_toolkit):
    verdict = problem(SM120, make_toolkit(tmp_path / "toolkit", **toolkit))
    assert finding in verdict and "CUDA_HOME" in verdict


def test_no_compiler_at_all(tmp_path, no_other_toolkit):
    verdict = problem(SM120, tmp_path / "absent")
    assert f"there is no {tmp_path / 'absent' / 'bin' / 'nvcc'}" in verdict and "flashinfer-jit-cache" in verdict


@pytest.mark.parametrize(
    "architecture, capability, serves",
    [
        ("sm120f", SM120, True),
        ("sm120f", SM121, True),
        ("sm120a", SM121, False),
        ("sm121a", SM120, False),
        ("sm90a", SM120, False),
        ("sm100a", SM100, True),
    ],
)
def test_prebuilt_kernels_need_no_compiler(architecture, capability, serves, tmp_path, no_other_toolkit):
    verdict = problem(capability, tmp_path / "absent", prebuilt=[architecture])
    assert (verdict is None) == serves


def test_compilation_switched_off(tmp_path, no_other_toolkit):
    home = make_toolkit(tmp_path / "toolkit")
    assert "FLASHINFER_DISABLE_JIT" in problem(SM120, home, FLASHINFER_DISABLE_JIT="1")
    assert problem(SM120, home, prebuilt=["sm120f"], FLASHINFER_DISABLE_JIT="1") is None


def test_sampling_needs_the_random_number_headers(tmp_path, no_other_toolkit):
    slim = make_toolkit(tmp_path / "slim", "12.9", curand=False)
    verdict = problem(SM120, slim, "sampling")
    assert "curand_kernel.h" in verdict and "libcurand-dev-12-9" in verdict
    assert problem(SM120, slim, "attention") is None
    split = make_toolkit(tmp_path / "split", "12.9", curand=False)
    header = split / "targets" / "x86_64-linux" / "include" / "curand_kernel.h"
    header.parent.mkdir(parents=True)
    header.touch()
    assert problem(SM120, split, "sampling") is None


def test_toolkits_are_looked_for_where_flashinfer_does(tmp_path, no_other_toolkit):
    home = make_toolkit(tmp_path / "home", "12.6")
    path = make_toolkit(tmp_path / "path", "12.8")
    search = str(path / "bin")
    assert find_toolkit({"CUDA_HOME": str(home), "PATH": search}).version == (12, 6)
    assert find_toolkit({"CUDA_PATH": str(home), "PATH": search}).version == (12, 6)
    assert find_toolkit({"PATH": search}).home == path
    assert find_toolkit({"PATH": "/nonexistent"}).home == tmp_path / "usr-local" / "cuda"


@pytest.mark.parametrize(
    "release, capability, expected",
    [
        ("12.8", SM120, "12.0a"),
        ("12.9", SM120, "12.0f"),
        ("13.0", SM120, "12.0f"),
        ("13.0", SM121, "12.1a"),
        ("13.0", SM90, "9.0a"),
        ("13.0", SM100, "10.0a"),
    ],
)
def test_target_that_flashinfer_builds_for(release, capability, expected, tmp_path, monkeypatch, no_other_toolkit):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", release)))
    assert arch_list(capability, DEFAULTS[capability]) == expected


@pytest.mark.parametrize(
    "asked_for, written",
    [("12.0f", "12.0f"), ("12.0a 12.1a", "12.0a 12.1a"), ("9.0a;12.0", "9.0a 12.0"), ("12.0f ", "12.0f"), (" ", None)],
)
def test_what_the_user_set_is_kept(asked_for, written, tmp_path, monkeypatch, no_other_toolkit):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "12.8")))
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", asked_for)
    assert arch_list(SM120, "12.0a") == (written or "12.0a")


def test_a_list_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "sm_120")
    with pytest.raises(ValueError, match="'sm_120' is no compute capability.*'9.0a 12.0f'"):
        arch_list(SM120, "12.0a")


def test_a_list_without_this_gpu_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "8.0 9.0a")
    assert arch_list(SM120, "12.0a") == "8.0 9.0a"
    assert "does not name this GPU (12.0)" in caplog.text


# --- what upstream makes of it ------------------------------------------------------------------------------


@pytest.fixture
def sm120(monkeypatch, no_other_toolkit):
    """A machine with FlashInfer and one RTX PRO 6000."""
    monkeypatch.setattr(common, "is_flashinfer_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: SM120)
    monkeypatch.setattr(model_override_base, "current_platform", SimpleNamespace(is_out_of_tree=lambda: False))
    facts = {"has_flashinfer": True, "device_capability": SM120, "is_hopper_with_cuda_12_3": False}
    with override_platform(**facts, is_sm100=False, is_hip=False):
        yield


def default_backends() -> tuple[str, str]:
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]), has_attention_sinks=False)
    arguments = SimpleNamespace(sampling_backend=None, speculative_algorithm=None)
    attention = model_override_base.get_default_attn_backend(arguments, False, model)
    return attention, overrides._sampling_backend_default(arguments)["sampling_backend"]


def test_defaults_with_a_usable_compiler(tmp_path, monkeypatch, sm120):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "13.0")))
    assert default_backends() == ("flashinfer", "flashinfer")


def test_defaults_with_an_old_compiler(tmp_path, monkeypatch, sm120, caplog):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "12.6")))
    assert default_backends() == ("triton", "pytorch")
    assert "is 12.6, and a GPU of compute capability 12.0 needs 12.8 or newer" in caplog.text


def test_defaults_without_a_compiler(sm120):
    assert default_backends() == ("triton", "pytorch")


NAMED = {name: None for name in ("attention_backend", "decode_attention_backend", "prefill_attention_backend")}
NAMED |= {"sampling_backend": None, "speculative_draft_attention_backend": None}


@pytest.mark.parametrize(
    "flag, other",
    [
        ("attention_backend", "triton"),
        ("decode_attention_backend", "triton"),
        ("speculative_draft_attention_backend", "triton"),
        ("sampling_backend", "pytorch"),
    ],
)
def test_flashinfer_asked_for_by_name_without_a_compiler_is_a_warning(flag, other, sm120, monkeypatch, caplog):
    monkeypatch.setattr(overrides, "resolved_view", lambda arguments: arguments)
    flashinfer_toolchain.warn_of_unusable_flashinfer(SimpleNamespace(**NAMED))
    assert not caplog.text
    flashinfer_toolchain.warn_of_unusable_flashinfer(SimpleNamespace(**{**NAMED, flag: "flashinfer"}))
    assert "FlashInfer cannot compile its kernels: there is no" in caplog.text
    assert f"-backend {other} needs no nvcc" in caplog.text


def test_a_launch_looks_at_the_backends_that_were_named(monkeypatch):
    class Reached(Exception):
        pass

    def reached(_):
        raise Reached

    monkeypatch.setattr(engine, "warn_of_unusable_flashinfer", reached)
    with pytest.raises(Reached):
        engine._set_envs_and_config(SimpleNamespace())


def test_runtime_target_with_a_new_compiler(tmp_path, monkeypatch, sm120):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "12.9")))
    common.set_cuda_arch()
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"


def test_runtime_target_of_the_user(monkeypatch, sm120):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "12.0a 12.1a")
    common.set_cuda_arch()
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0a 12.1a"


def test_without_the_patch_the_compiler_is_not_asked_and_the_list_is_overwritten(trees):
    tests = [
        "test_defaults_with_an_old_compiler",
        "test_defaults_without_a_compiler",
        "test_runtime_target_with_a_new_compiler",
        "test_runtime_target_of_the_user",
        "test_a_launch_looks_at_the_backends_that_were_named",
    ]
    failing = trees.failing_without(PATCH, *(f"{__file__}::{test}" for test in tests))
    assert set(failing) == set(tests)
