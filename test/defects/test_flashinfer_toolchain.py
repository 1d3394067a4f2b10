"""R31, R32, R34: a server compiles with one toolkit that can build for its GPUs, and FlashInfer is the default only
where it can get its kernels.

Toolkits are folders with a small nvcc script; no GPU is involved.
"""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.fake_toolkit import CURAND, make_toolkit
from sglang.srt.arg_groups import model_override_base, overrides
from sglang.srt.entrypoints import engine
from sglang.srt.runtime_context import override_platform
from sglang.srt.utils import common, flashinfer_toolchain
from sglang.srt.utils.flashinfer_toolchain import arch_list

PATCH = "flashinfer-toolchain"
SM120, SM121 = (12, 0), (12, 1)
VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CONDA_PREFIX",
    "CPATH",
    "LIBRARY_PATH",
    "FLASHINFER_CUBIN_DIR",
    "FLASHINFER_CUDA_ARCH_LIST",
    "FLASHINFER_DISABLE_JIT",
    "FLASHINFER_WORKSPACE_BASE",
)


@pytest.fixture
def no_toolkit(monkeypatch, tmp_path):
    """Nothing in PATH, /usr/local or the environment: a test brings its own toolkits."""
    monkeypatch.setattr(flashinfer_toolchain, "DEFAULT_HOME", tmp_path / "usr-local" / "cuda")
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is absent again afterwards, whatever the code under test sets
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("SGLANG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(flashinfer_toolchain, "prebuilt_architectures", lambda: frozenset())
    for cached in (flashinfer_toolchain.chosen_toolkit, flashinfer_toolchain._warn_once):
        cached.cache_clear()
    yield
    flashinfer_toolchain.chosen_toolkit.cache_clear()


@pytest.fixture
def sm120(monkeypatch, no_toolkit):
    """A machine with FlashInfer and one RTX PRO 6000."""
    monkeypatch.setattr(common, "is_flashinfer_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: SM120)
    monkeypatch.setattr(model_override_base, "current_platform", SimpleNamespace(is_out_of_tree=lambda: False))
    facts = {"has_flashinfer": True, "is_cuda": True, "device_capability": SM120, "is_hopper_with_cuda_12_3": False}
    with override_platform(**facts, is_sm100=False, is_hip=False):
        yield


def default_backends() -> tuple[str, str]:
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]), has_attention_sinks=False)
    arguments = SimpleNamespace(sampling_backend=None, speculative_algorithm=None)
    attention = model_override_base.get_default_attn_backend(arguments, False, model)
    return attention, overrides._sampling_backend_default(arguments)["sampling_backend"]


def launch(monkeypatch, **named: str) -> None:
    """What a launch does about toolkits, with the backends that were named."""
    flags = ("attention_backend", "decode_attention_backend", "prefill_attention_backend", "sampling_backend")
    arguments = SimpleNamespace(**dict.fromkeys((*flags, "speculative_draft_attention_backend")))
    vars(arguments).update(named)
    monkeypatch.setattr(overrides, "resolved_view", lambda arguments: arguments)
    flashinfer_toolchain.prepare_toolkit(arguments)


# --- FlashInfer by default -------------------------------------------------------------------------------------------


def test_r31_defaults_with_a_usable_compiler(tmp_path, monkeypatch, sm120):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "13.0")))
    assert default_backends() == ("flashinfer", "flashinfer")


def test_r31_defaults_with_an_old_compiler(tmp_path, monkeypatch, sm120, caplog):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "12.6")))
    assert default_backends() == ("triton", "pytorch")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "the default is triton for attention and pytorch for sampling" in warning
    assert "is 12.6, and a GPU of compute capability 12.0 needs 12.8 or newer" in warning
    assert "pip install 'nvidia-cuda-nvcc" in warning


def test_r31_defaults_without_a_compiler(sm120):
    assert default_backends() == ("triton", "pytorch")


def test_r32_defaults_without_curand(tmp_path, monkeypatch, sm120, caplog):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", without=CURAND)))
    assert default_backends() == ("flashinfer", "pytorch")
    assert "the default is pytorch for sampling" in caplog.text and "libcurand-dev-13-0" in caplog.text


@pytest.mark.parametrize(
    "architecture, serves", [("sm120f", True), ("sm120a", True), ("sm121a", False), ("sm90a", False)]
)
def test_prebuilt_kernels_need_no_compiler(architecture, serves, monkeypatch, sm120):
    monkeypatch.setattr(flashinfer_toolchain, "prebuilt_architectures", lambda: frozenset([architecture]))
    assert default_backends() == (("flashinfer", "flashinfer") if serves else ("triton", "pytorch"))


def test_compilation_switched_off(tmp_path, monkeypatch, sm120, caplog):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit")))
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    assert default_backends() == ("triton", "pytorch")
    assert "FLASHINFER_DISABLE_JIT is set" in caplog.text


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
    launch(monkeypatch)
    assert not caplog.text
    launch(monkeypatch, **{flag: "flashinfer"})
    assert "FlashInfer cannot compile its kernels: no CUDA toolkit was found" in caplog.text
    assert f"-backend {other} needs no nvcc" in caplog.text


# --- the toolkit of a launch -----------------------------------------------------------------------------------------


def test_r32_a_launch_sets_one_toolkit_and_says_why(tmp_path, monkeypatch, sm120, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("CUDA_HOME", "/nonexistent/cuda")
    home = make_toolkit(tmp_path / "usr-local" / "cuda", "12.9")
    launch(monkeypatch)
    assert os.environ["CUDA_HOME"] == os.environ["CUDA_PATH"] == str(home)
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"
    assert "LIBRARY_PATH" not in os.environ
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"CUDA toolkit: {home} (nvcc 12.9.88) in place of CUDA_HOME=/nonexistent/cuda, ")
    assert "there is no /nonexistent/cuda/bin/nvcc" in line


def test_r32_libraries_under_versioned_names_are_made_linkable(tmp_path, monkeypatch, sm120):
    home = make_toolkit(tmp_path / "pip", libraries="lib", versioned=True)
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("LIBRARY_PATH", "/mine")
    launch(monkeypatch)
    links, mine = os.environ["LIBRARY_PATH"].split(":")
    assert mine == "/mine"
    assert Path(links, "libcudart.so").resolve() == home / "lib" / "libcudart.so.13"


def test_r34_kernels_of_two_toolkits_lie_apart_and_of_two_spellings_together(tmp_path, monkeypatch, sm120):
    first = make_toolkit(tmp_path / "first", "12.9")
    second = make_toolkit(tmp_path / "second", "13.0")
    (tmp_path / "link").symlink_to(first)
    folders = []
    for home in (first, second, tmp_path / "link"):
        flashinfer_toolchain.chosen_toolkit.cache_clear()
        for variable in ("CUDA_PATH", "FLASHINFER_WORKSPACE_BASE", "FLASHINFER_CUDA_ARCH_LIST"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("CUDA_HOME", str(home))
        launch(monkeypatch)
        folders.append(os.environ["FLASHINFER_WORKSPACE_BASE"])
    assert folders[0] == folders[2] != folders[1]
    assert os.environ["CUDA_HOME"] == str(first)  # one spelling in the build files, whatever the user's


def test_r34_a_folder_of_kernels_that_the_user_named_is_kept(tmp_path, monkeypatch, sm120):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit")))
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path / "mine"))
    launch(monkeypatch)
    assert os.environ["FLASHINFER_WORKSPACE_BASE"] == str(tmp_path / "mine")


def test_a_launch_prepares_its_toolkit(monkeypatch):
    class Reached(Exception):
        pass

    def reached(_):
        raise Reached

    monkeypatch.setattr(engine, "prepare_toolkit", reached)
    with pytest.raises(Reached):
        engine._set_envs_and_config(SimpleNamespace())


def test_a_launch_without_cuda_sets_nothing(tmp_path, monkeypatch, no_toolkit):
    make_toolkit(tmp_path / "usr-local" / "cuda")
    with override_platform(is_cuda=False):
        launch(monkeypatch)
    assert "CUDA_HOME" not in os.environ


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked_for, written",
    [
        ("12.0f", "12.0f"),
        ("12.0a 12.1a", "12.0a 12.1a"),
        ("9.0a;12.0", "9.0a 12.0"),
        ("12.0f ", "12.0f"),
        (" ", "12.0a"),
    ],
)
def test_r31_what_the_user_set_is_kept(asked_for, written, monkeypatch):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", asked_for)
    assert arch_list([SM120], (12, 8)) == written


def test_r31_a_list_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "sm_120")
    with pytest.raises(ValueError, match="'sm_120' is no compute capability.*'9.0a 12.0f'"):
        arch_list([SM120], (13, 0))


def test_r31_a_list_without_this_gpu_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "8.0 9.0a")
    assert arch_list([SM120, SM121], (13, 0)) == "8.0 9.0a"
    assert "does not name this GPU (12.0, 12.1)" in caplog.text


def test_r31_runtime_target_with_a_new_compiler(tmp_path, monkeypatch, sm120):
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path / "toolkit", "12.9")))
    common.set_cuda_arch()
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"


def test_r31_runtime_target_of_the_user(monkeypatch, sm120):
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "12.0a 12.1a")
    common.set_cuda_arch()
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0a 12.1a"


def test_without_the_patch_the_compiler_is_not_asked_and_the_list_is_overwritten(trees):
    tests = [
        "test_r31_defaults_with_an_old_compiler",
        "test_r31_defaults_without_a_compiler",
        "test_r32_defaults_without_curand",
        "test_r31_runtime_target_with_a_new_compiler",
        "test_r31_runtime_target_of_the_user",
        "test_a_launch_prepares_its_toolkit",
    ]
    failing = trees.failing_without(PATCH, *(f"{__file__}::{test}" for test in tests))
    assert set(failing) == set(tests)
