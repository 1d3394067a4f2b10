"""R31, R32, R34: what is read from toolkits on disk, and which of several is taken. Folders stand for toolkits."""

import os
from pathlib import Path

import pytest

from harness.fake_toolkit import CURAND, make_toolkit
from sglang.cuda_doctor.toolkit_rules import (
    USES,
    align,
    choose_toolkit,
    compile_environment,
    install_headers,
    target_list,
    toolkit_problem,
)
from sglang.cuda_doctor.toolkits import HEADER_PACKAGES, find_toolkits, read_toolkit

SM90, SM100, SM103, SM120, SM121 = (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)


class Machine:
    """A folder with toolkits where a machine has them: /usr/local, PATH, site-packages, a conda environment."""

    def __init__(self, folder: Path) -> None:
        self.system = folder / "usr-local" / "cuda"
        self.packages = folder / "site-packages"
        self.conda = folder / "conda"
        self.path = folder / "path"
        self.folder = folder

    def toolkits(self, **environment: str):
        return find_toolkits({"PATH": "/nonexistent", **environment}, self.system, [self.packages])

    def choice(self, *capabilities, torch=(13, 0), **environment: str):
        return choose_toolkit(self.toolkits(**environment), capabilities, torch)

    def pip(self, release="13.0", **parts) -> Path:
        parts = {"libraries": "lib", "versioned": True, **parts}
        return make_toolkit(self.packages / "nvidia" / "cu13", release, **parts)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def cause(home: Path, capability, use="attention") -> str | None:
    problem = toolkit_problem(read_toolkit(home), [capability], use)
    return problem and problem.cause


# nvcc of a release on a GPU: the release that the verdict asks for, None where it is fine.
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
def test_r31_verdict_names_toolkit_gpu_and_need(release, capability, tmp_path):
    home = make_toolkit(tmp_path / "toolkit", release)
    verdict, needed = cause(home, capability), VERDICTS[release, capability]
    if needed is None:
        assert verdict is None
    else:
        assert str(home) in verdict and release in verdict
        assert f"{capability[0]}.{capability[1]} needs {needed} or newer" in verdict


def test_r31_mixed_gpus_are_all_looked_at(tmp_path):
    toolkit = read_toolkit(make_toolkit(tmp_path / "toolkit", "12.8"))
    assert toolkit_problem(toolkit, [SM90, SM120], "attention") is None
    assert "12.1 needs 12.9" in toolkit_problem(toolkit, [SM90, SM120, SM121], "attention").cause


@pytest.mark.parametrize(
    "parts, finding", [({"release": None}, "does not tell its release"), ({"exits": 1}, "cannot be run")]
)
def test_r31_a_compiler_that_does_not_work(parts, finding, tmp_path):
    assert finding in cause(make_toolkit(tmp_path / "toolkit", **parts), SM120)


def test_r31_no_compiler_at_all(tmp_path):
    assert cause(tmp_path / "absent", SM120) == f"there is no {tmp_path / 'absent' / 'bin' / 'nvcc'}"


def test_r31_old_nvcc_first_on_path_is_passed_over_for_a_newer_one(machine):
    old = make_toolkit(machine.path, "12.6")
    new = make_toolkit(machine.system.with_name("cuda-12.9"), "12.9")
    choice = machine.choice(SM120, PATH=str(old / "bin"))
    assert choice.toolkit.home == str(new) and not choice.problems
    assert "PATH was passed over" in choice.reason and "12.0 needs 12.8 or newer" in choice.reason


@pytest.mark.parametrize(
    "nvcc, capabilities, targets",
    [
        ((12, 8), [SM120], "12.0a"),
        ((12, 9), [SM120], "12.0f"),
        ((13, 0), [SM121], "12.1a"),
        ((13, 0), [SM120, SM90], "9.0a 12.0f"),
        ((13, 0), [(8, 9), SM100], "8.9 10.0a"),
    ],
)
def test_r31_targets_of_the_gpus_present(nvcc, capabilities, targets):
    assert target_list(capabilities, nvcc) == targets


def test_r32_compiler_alone(tmp_path):
    verdict = cause(make_toolkit(tmp_path / "slim", "12.9", headers=None), SM120)
    assert "cuda.h" in verdict and "crt/host_config.h" in verdict


def test_r32_sampling_needs_curand_and_attention_does_not(tmp_path):
    slim = make_toolkit(tmp_path / "slim", "12.9", without=CURAND)
    assert cause(slim, SM120) is None
    assert cause(slim, SM120, "sampling") == f"the CUDA toolkit at {slim} has no {', '.join(CURAND)}"
    assert toolkit_problem(read_toolkit(slim), [SM120], "sampling").fix == "sudo apt-get install libcurand-dev-12-9"


def test_r32_headers_in_the_folder_of_a_target_count(tmp_path):
    home = make_toolkit(
        tmp_path / "split", includes="targets/x86_64-linux/include", libraries="targets/x86_64-linux/lib"
    )
    toolkit = read_toolkit(home)
    assert toolkit.missing == () and toolkit.headers == (13, 0)
    assert [toolkit_problem(toolkit, [SM120], use) for use in USES] == [None, None]
    changed = compile_environment(toolkit, {"CPATH": "/mine"}, Path("/links"))
    assert changed["CPATH"] == f"{home}/targets/x86_64-linux/include:/mine"
    assert changed["LIBRARY_PATH"] == "/links"


def test_r32_compiler_newer_than_headers(machine):
    toolkit = read_toolkit(machine.pip("13.3", headers="13.0"), "pip")
    problem = toolkit_problem(toolkit, [SM120], "attention")
    assert "nvcc 13.3 and headers of 13.0" in problem.cause
    assert problem.fix.startswith("pip install 'nvidia-cuda-nvcc==13.0.*'")  # the runtime's release is PyTorch's pin
    system = read_toolkit(make_toolkit(machine.system, "12.9", headers="12.8"))
    assert "cuda-cudart-dev-12-9" in toolkit_problem(system, [SM120], "attention").fix


@pytest.mark.parametrize("folder", ["lib64", "lib"])
def test_r32_libraries_count_in_lib_and_in_lib64(folder, tmp_path):
    toolkit = read_toolkit(make_toolkit(tmp_path / "toolkit", libraries=folder))
    assert toolkit.runtime == str(tmp_path / "toolkit" / folder / "libcudart.so")
    assert toolkit_problem(toolkit, [SM120], "attention") is None
    changed = compile_environment(toolkit, {}, Path("/links"))
    assert ("LIBRARY_PATH" in changed) == (folder == "lib")


def test_r32_no_library_to_link_with(tmp_path):
    assert "no libcudart.so" in cause(make_toolkit(tmp_path / "toolkit", libraries=None), SM120)


def test_r32_curand_only_in_pips_packages_makes_pip_the_choice(machine):
    make_toolkit(machine.system, "13.0", without=CURAND)
    pip = machine.pip()
    choice = machine.choice(SM120)
    assert choice.toolkit.home == str(pip) and not choice.problems
    assert "default was passed over" in choice.reason and "curand.h" in choice.reason


def test_r32_a_toolkit_without_curand_still_serves_attention_where_there_is_no_other(machine):
    home = make_toolkit(machine.system, "13.0", without=CURAND)
    choice = machine.choice(SM120)
    assert choice.toolkit.home == str(home) and set(choice.problems) == {"sampling"}


def test_r32_what_the_user_named_is_kept_where_it_works(machine):
    mine = make_toolkit(machine.folder / "mine", "12.8")
    make_toolkit(machine.system, "13.0")
    machine.pip()
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        choice = machine.choice(SM120, **{variable: str(mine)})
        assert choice.toolkit.home == str(mine) and choice.reason == f"named by {variable}"


def test_r32_a_broken_toolkit_that_the_user_named_is_replaced_and_told(machine):
    pip = machine.pip()
    choice = machine.choice(SM90, CUDA_HOME="/nonexistent/cuda")
    assert choice.toolkit.home == str(pip)
    assert choice.reason == ("installed by pip; CUDA_HOME was passed over: there is no /nonexistent/cuda/bin/nvcc")


def test_r32_pytorchs_own_major_version_goes_first(machine):
    make_toolkit(machine.system, "12.8")
    pip = machine.pip()
    assert machine.choice(SM120, torch=(13, 0)).toolkit.home == str(pip)
    assert machine.choice(SM120, torch=(12, 8)).toolkit.home == str(machine.system)


def test_r32_conda_is_found_by_its_prefix(machine):
    home = make_toolkit(machine.conda, "12.9")
    assert machine.toolkits(CONDA_PREFIX=str(home)) == []  # a prefix without conda-meta is no conda environment
    (home / "conda-meta").mkdir()
    assert [(toolkit.home, toolkit.source) for toolkit in machine.toolkits(CONDA_PREFIX=str(home))] == [
        (str(home), "conda")
    ]


def test_no_toolkit_serves(machine):
    make_toolkit(machine.system, "12.6")
    choice = machine.choice(SM120)
    assert choice.toolkit is None and set(choice.problems) == {"attention", "sampling"}
    assert choose_toolkit([], [SM120]).problems["attention"].cause == "no CUDA toolkit was found"


def test_r34_a_toolkit_under_several_spellings_is_one(machine):
    real = make_toolkit(machine.system.with_name("cuda-13.0"))
    machine.system.symlink_to(real)
    spellings = {"CUDA_HOME": f"{machine.system}/", "PATH": str(real / ".." / "cuda" / "bin")}
    found = machine.toolkits(**spellings)
    assert [(toolkit.home, toolkit.source) for toolkit in found] == [(str(real), "CUDA_HOME")]
    link = machine.folder / "bin" / "nvcc"
    link.parent.mkdir()
    link.symlink_to(real / "bin" / "nvcc")
    assert [toolkit.home for toolkit in machine.toolkits(PATH=str(link.parent))] == [str(real)]


def test_versions_in_the_system_folder_are_looked_at_newest_first(machine):
    for release in ("9.2", "12.8", "13.0"):
        make_toolkit(machine.system.with_name(f"cuda-{release}"), release)
    assert [toolkit.nvcc for toolkit in machine.toolkits()] == [(13, 0), (12, 8), (9, 2)]


def test_r32_pips_toolkit_is_mended_by_pip_also_where_path_leads_to_it(machine):
    home = machine.pip("13.3", headers="13.0", without=CURAND)
    (toolkit,) = machine.toolkits(PATH=str(home / "bin"))
    assert toolkit.source == "PATH"
    assert install_headers(toolkit, CURAND) == "pip install nvidia-curand"
    assert align(toolkit).startswith("pip install 'nvidia-cuda-nvcc==13.0.*'")


@pytest.mark.parametrize("header", HEADER_PACKAGES)
def test_each_header_that_is_missing_is_told_with_its_package(header, tmp_path):
    toolkit = read_toolkit(make_toolkit(tmp_path / "toolkit", without=[header]), "pip")
    assert toolkit.missing == (header,)
    assert HEADER_PACKAGES[header][0] in install_headers(toolkit, toolkit.missing)


def test_reading_leaves_no_trace(tmp_path):
    home = make_toolkit(tmp_path / "toolkit")
    before = sorted(os.walk(home))
    read_toolkit(home)
    assert sorted(os.walk(home)) == before
