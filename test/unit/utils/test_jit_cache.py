"""R34: what names the folder of FlashInfer's kernels, and that a build that was cut off is never used again."""

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sglang.cuda_doctor.compiled_kernels import is_complete, read_cache
from sglang.cuda_doctor.toolkits import Toolkit
from sglang.srt.utils.jit_cache import cache_key, compiled_versions, drop_half_finished

TOOLKIT = Toolkit("/opt/cuda-13.0", "default", nvcc=(13, 0), build="13.0.88", headers=(13, 0))
VERSIONS = {"torch": "2.13.0+cu130", "flashinfer": "0.7.2", "flashinfer files": "aa"}
KEY = cache_key(TOOLKIT, "12.0f", VERSIONS)


@pytest.mark.parametrize(
    "change",
    [
        {"home": "/opt/cuda-13.0-other"},
        {"build": "13.0.91"},
        {"headers": (13, 1)},
    ],
)
def test_another_toolkit_has_another_key(change):
    assert cache_key(dataclasses.replace(TOOLKIT, **change), "12.0f", VERSIONS) != KEY


@pytest.mark.parametrize("name", VERSIONS)
def test_another_version_of_what_is_compiled_has_another_key(name):
    assert cache_key(TOOLKIT, "12.0f", {**VERSIONS, name: "other"}) != KEY


def test_other_targets_have_another_key_and_their_order_has_none():
    assert cache_key(TOOLKIT, "12.0a", VERSIONS) != KEY
    assert cache_key(TOOLKIT, "9.0a 12.0f", VERSIONS) == cache_key(TOOLKIT, "12.0f  9.0a", VERSIONS) != KEY


@pytest.mark.parametrize("change", [{"source": "CUDA_HOME"}, {"missing": ("nvrtc.h",)}])
def test_how_a_toolkit_was_found_is_not_in_its_key(change):
    assert cache_key(dataclasses.replace(TOOLKIT, **change), "12.0f", VERSIONS) == KEY


def test_versions_name_the_installed_torch():
    assert compiled_versions()["torch"] == version("torch")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> bytes:
    """A shared library from the system's compiler."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "one.so", "one.c"], cwd=folder, check=True)
    return (folder / "one.so").read_bytes()


@pytest.fixture
def operations(tmp_path) -> Path:
    return tmp_path / ".cache" / "flashinfer" / "0.7.2" / "120f" / "cached_ops"


def write_module(operations: Path, name: str, content: bytes, file: str | None = None) -> Path:
    folder = operations / name
    folder.mkdir(parents=True)
    (folder / (file or f"{name}.so")).write_bytes(content)
    return folder


def test_a_library_is_complete_only_to_its_last_byte(tmp_path, library):
    file = tmp_path / "a.so"
    file.write_bytes(library)
    assert is_complete(file)
    for size in (0, 10, 64, len(library) // 2, len(library) - 1):
        file.write_bytes(library[:size])
        assert not is_complete(file)
    file.write_bytes(b"\0" * len(library))
    assert not is_complete(file)


@pytest.mark.parametrize("file", ["sampling.so", "csrc_sampling.cuda.o"])
def test_a_module_that_was_cut_off_is_removed_and_the_others_stay(file, tmp_path, operations, library):
    whole = write_module(operations, "page", library)
    begun = write_module(operations, "norm", b"", "build.ninja")
    broken = write_module(operations, "sampling", library[:-100], file)
    assert read_cache(tmp_path).broken == (str(broken),)
    assert drop_half_finished(tmp_path) == ["sampling"]
    assert not broken.exists() and whole.is_dir() and begun.is_dir()
    assert drop_half_finished(tmp_path) == []


def test_a_module_that_another_process_builds_is_left_alone(tmp_path, operations, library):
    building = write_module(operations, "sampling", library[:100])
    lock = operations / "tmp" / "sampling.lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert drop_half_finished(tmp_path) == []
        assert building.is_dir()
    assert drop_half_finished(tmp_path) == ["sampling"]


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path, operations, library):
    broken = write_module(operations, "sampling", library[:100])
    (operations / "tmp").write_text("a file where the locks would lie")
    assert drop_half_finished(tmp_path) == []
    assert broken.is_dir()


def test_a_builder_that_is_killed_leaves_nothing_that_is_used(tmp_path, operations, library):
    """A process takes the module's lock, writes half of its library and is killed."""
    folder = write_module(operations, "sampling", b"", "build.ninja")
    (operations / "tmp").mkdir()
    (tmp_path / "library").write_bytes(library)
    code = (
        "import fcntl, sys, time, pathlib\n"
        f"lock = open({str(operations / 'tmp' / 'sampling.lock')!r}, 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"whole = pathlib.Path({str(tmp_path / 'library')!r}).read_bytes()\n"
        f"pathlib.Path({str(folder / 'sampling.so')!r}).write_bytes(whole[:len(whole) // 2])\n"
        "print('half', flush=True); time.sleep(60)\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert builder.stdout.readline() == "half\n"
    assert drop_half_finished(tmp_path) == []
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait(timeout=10)
    assert drop_half_finished(tmp_path) == ["sampling"]
    assert not folder.exists()
