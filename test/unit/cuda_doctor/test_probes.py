"""What is read from the machine and from nvidia-smi's tables, here with none of it present."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sglang.cuda_doctor
from harness.fake_toolkit import make_toolkit
from sglang.cuda_doctor import probes
from sglang.cuda_doctor.compiled_kernels import read_cache
from sglang.cuda_doctor.early import doctor_arguments
from sglang.cuda_doctor.nvidia_smi import parse_cuda_version, parse_gpus, parse_matrix
from sglang.cuda_doctor.storage import read_disk
from sglang.cuda_doctor.toolkit_rules import choose_toolkit
from sglang.cuda_doctor.toolkits import find_toolkits

FOLDER = Path(sglang.cuda_doctor.__file__).parent
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNODE\tSYS\tPIX\t0-31\t0\t\tN/A
GPU1\tNODE\t X \tSYS\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X

Legend:

  X    = Self
"""
PEERS = """\
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tNS\tX\t

Legend:

  X    = Self
  OK   = Status Ok
"""
SINGLE = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n"
GPUS = """\
0, NVIDIA RTX PRO 6000 Blackwell Workstation Edition, 12.0, 97887, 00000000:01:00.0, 1, 16, 16
1, NVIDIA GB10, 12.1, [N/A], 0000000F:01:00.0, [N/A], [N/A], [N/A]
"""


def test_topology_of_three_gpus():
    assert parse_matrix(TOPOLOGY) == (("X", "NODE", "SYS"), ("NODE", "X", "SYS"), ("SYS", "SYS", "X"))


def test_peer_access_of_two_gpus():
    assert parse_matrix(PEERS) == (("X", "OK"), ("NS", "X"))


def test_topology_of_one_gpu():
    assert parse_matrix(SINGLE) == (("X",),)


def test_gpus():
    first, second = parse_gpus(GPUS)
    assert (first.capability, first.memory_mib, first.link_width, first.link_width_max) == ((12, 0), 97887, 16, 16)
    assert (second.capability, second.memory_mib, second.link_width) == ((12, 1), 0, None)


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="expected 8 columns, found 'No devices were found'"):
        parse_gpus("No devices were found\n")


def test_cuda_version_of_the_driver():
    line = "| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0     |"
    assert parse_cuda_version(line) == (13, 0)
    assert parse_cuda_version("N/A") is None


def test_a_probe_that_fails_is_a_line_in_the_report(monkeypatch):
    def fails(*_):
        raise RuntimeError("Failed to initialize NVML: Driver/library version mismatch\nmore")

    monkeypatch.setattr(probes, "_smi", fails)
    facts = probes.read_machine()
    assert facts.failed["gpus"] == "RuntimeError: Failed to initialize NVML: Driver/library version mismatch"
    assert facts.gpus == () and facts.python


def test_nvidia_smi_that_hangs_is_given_up(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(probes, "_SECONDS", 0.2)
    assert "TimeoutExpired" in probes.read_machine().failed["gpus"]


def test_toolkits_named_in_compiled_modules(tmp_path):
    operations = tmp_path / ".cache" / "flashinfer" / "0.7.2" / "120f" / "cached_ops"
    for name, home in {"page": "/usr/local/cuda", "sampling": "/usr/local/cuda-13.0"}.items():
        (operations / name).mkdir(parents=True)
        (operations / name / "build.ninja").write_text(f"name = {name}\ncuda_home = {home}\n")
    cache = read_cache(tmp_path)
    assert (cache.modules, cache.broken) == (2, ())
    assert cache.toolkits == ("/usr/local/cuda", "/usr/local/cuda-13.0")


def test_large_files_below_a_folder_of_models(tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(3 * 2**30)  # sparse
    (tmp_path / "config.json").write_text("{}")
    disk = read_disk(tmp_path)
    assert disk.large_files_gib == 3.0 and disk.filesystem and disk.free_gib > 0
    assert read_disk(tmp_path / "absent" / "hub").large_files_gib == 0.0


def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with one toolkit and no packages."""
    home = make_toolkit(tmp_path / "toolkit", "12.6")
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CUDA_HOME": str(home)}


def expected_status(environment: dict[str, str], packages: tuple[Path, ...] | None = None) -> int:
    """1 unless this machine has a toolkit beside the one of `bare` that serves a GPU of 12.0."""
    return int(bool(choose_toolkit(find_toolkits(environment, packages=packages), {(12, 0)}).problems))


def test_the_folder_runs_on_the_standard_library_alone_in_seconds(tmp_path):
    begin, environment = time.monotonic(), bare(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(FOLDER), "--gpus", "12.0"], env=environment, capture_output=True, text=True
    )
    assert time.monotonic() - begin < 10
    assert done.returncode == expected_status(environment, packages=()), done.stderr
    assert "is 12.6, and a GPU of compute capability 12.0 needs 12.8 or newer" in done.stdout


def test_a_machine_without_gpu_ends_with_0_and_says_so(tmp_path):
    environment = {**bare(tmp_path), "PATH": "/nonexistent"}
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA driver")
    done = subprocess.run([sys.executable, str(FOLDER)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this machine has no NVIDIA GPU" in done.stdout


@pytest.mark.parametrize(
    "command, arguments",
    [
        (["python", "-m", "sglang.cuda_doctor"], []),
        (["python", "-I", "-m", "sglang.cuda_doctor", "--json", "-m"], ["--json", "-m"]),
        (["python", "-m", "pytest", "-m", "sglang.cuda_doctor"], None),
        (["python", "-m", "sglang.launch_server"], None),
        (["python", "-m"], None),
        (["python", "sglang.cuda_doctor"], None),
    ],
)
def test_command_lines_that_ask_for_the_doctor(command, arguments):
    assert doctor_arguments(command) == arguments


def test_the_module_answers_where_torch_cannot_be_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    paths = [str(tmp_path), *sys.path]
    environment = {**bare(tmp_path), "PYTHONPATH": ":".join(path for path in paths if path)}
    command = [sys.executable, "-m", "sglang.cuda_doctor", "--gpus", "12.0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == expected_status(environment), done.stderr
    assert "compute capability 12.0 needs 12.8 or newer" in done.stdout and done.stderr == ""
