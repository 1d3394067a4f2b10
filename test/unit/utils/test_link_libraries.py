"""R32: a toolkit whose libraries have versioned names alone, as pip's packages do, is made fit for a linker."""

import shutil
import subprocess

import pytest

from harness.fake_toolkit import make_toolkit
from sglang.cuda_doctor.toolkits import read_toolkit
from sglang.srt.utils.link_libraries import driver_library, link_libraries


@pytest.fixture
def pip(tmp_path):
    return read_toolkit(make_toolkit(tmp_path / "cu13", libraries="lib", versioned=True), "pip")


def test_links_lead_to_the_toolkits_library_and_follow_it(tmp_path, pip):
    links = tmp_path / "links"
    link_libraries(pip, links)
    link_libraries(pip, links)
    assert (links / "libcudart.so").resolve() == tmp_path / "cu13" / "lib" / "libcudart.so.13"
    other = read_toolkit(make_toolkit(tmp_path / "other", "13.1", libraries="lib", versioned=True), "pip")
    link_libraries(other, links)
    assert (links / "libcudart.so").resolve() == tmp_path / "other" / "lib" / "libcudart.so.13"
    assert {link.name for link in links.iterdir()} <= {"libcudart.so", "libcuda.so"}


def test_the_toolkits_stub_goes_before_the_installed_driver(tmp_path):
    home = make_toolkit(tmp_path / "toolkit")
    stub = home / "lib64" / "stubs" / "libcuda.so"
    stub.parent.mkdir()
    stub.touch()
    assert driver_library(home) == stub


def test_the_installed_driver_is_found_by_the_loaders_list(tmp_path, monkeypatch):
    listed = (
        "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n\tlibcudart.so (libc6,x86-64) => /x/libcudart.so\n"
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, listed))
    assert str(driver_library(tmp_path)) == "/usr/lib/libcuda.so.1"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "\tlibc.so.6 => /c\n"))
    assert driver_library(tmp_path) is None


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_linker_finds_the_library(tmp_path, pip):
    """As FlashInfer links: ``-lcudart`` and the toolkit's lib64, which does not exist."""
    (tmp_path / "runtime.c").write_text("int cudaThing(void) { return 7; }\n")
    (tmp_path / "module.c").write_text("int cudaThing(void); int module(void) { return cudaThing(); }\n")
    soname = "-Wl,-soname,libcudart.so.13"
    subprocess.run(["cc", "-shared", "-fPIC", soname, "-o", pip.runtime, "runtime.c"], cwd=tmp_path, check=True)
    link_libraries(pip, tmp_path / "links")
    command = ["cc", "-shared", "-fPIC", "-o", "module.so", "module.c", f"-L{pip.home}/lib64", "-lcudart"]
    environment = {"PATH": "/usr/bin:/bin", "LIBRARY_PATH": str(tmp_path / "links")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    needed = subprocess.run(["readelf", "-d", "module.so"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "libcudart.so.13" in needed.stdout
