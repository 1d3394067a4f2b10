"""Recorded facts in, findings out: each public report of areas F and G that a doctor can see, by its id."""

import dataclasses
import json

import pytest

from harness.machines import HEALTHY, PIP, PRO_6000, SPARK, machine, replaced, several, toolkit
from sglang.cuda_doctor.command import main
from sglang.cuda_doctor.facts import CacheFacts, DiskFacts, Facts, FlashInferFacts, Gpu, from_json, to_json
from sglang.cuda_doctor.findings import Finding, diagnose
from sglang.cuda_doctor.report import as_text


def finding(facts: Facts, name: str) -> Finding:
    (found,) = [finding for finding in diagnose(facts) if finding.name == name]
    return found


def names(facts: Facts) -> list[str]:
    return [finding.name for finding in diagnose(facts)]


def test_a_healthy_machine_has_no_finding():
    assert diagnose(HEALTHY) == []
    assert "Nothing needs a hand." in as_text(HEALTHY, [])


# --- R28: peer access ---------------------------------------------------------------------------------------------


def test_r28_one_bad_pair_is_named():
    facts = several(4)
    facts = dataclasses.replace(facts, peers=replaced(facts.peers, (1, 3), (3, 1), by="CNS"))
    found = finding(facts, "peer-access-partial")
    assert found.severity == "error"
    assert "GPU1 to GPU3 (CNS), GPU3 to GPU1 (CNS)" in found.what and "GPU0" not in found.what
    assert "NCCL_P2P_DISABLE=1" in found.fix and "--moe-a2a-backend none" in found.fix


def test_r28_access_in_one_direction_only():
    facts = several(2)
    found = finding(dataclasses.replace(facts, peers=replaced(facts.peers, (1, 0), by="NS")), "peer-access-partial")
    assert "GPU1 to GPU0 (NS)" in found.what and "GPU0 to GPU1" not in found.what


@pytest.mark.parametrize("count", [2, 4, 8])
def test_r28_no_peer_access_at_all_is_slow_and_no_error(count):
    found = finding(several(count, peer="NS"), "peer-access-none")
    assert found.severity == "note" and "through host memory" in found.what


def test_r28_peer_access_that_the_driver_reports_behind_an_iommu():
    found = finding(several(2, iommu=True), "peer-access-behind-iommu")
    assert found.severity == "error" and "hang" in found.what and "NCCL_P2P_DISABLE=1" in found.fix
    assert "peer-access-behind-iommu" not in names(several(2, iommu=False))
    assert "peer-access-behind-iommu" not in names(several(2, way="NV18", iommu=True))


def test_r28_peer_access_that_was_switched_off_is_no_finding():
    off = {"environment": {"NCCL_P2P_DISABLE": "1"}}
    assert names(several(2, peer="NS", **off)) == names(several(2, iommu=True, **off)) == []


def test_r28_tensor_parallelism_over_more_than_two_pcie_gpus_is_slow():
    found = finding(several(8), "custom-all-reduce")
    assert found.severity == "note" and "--tp-size 8 --ep-size 8" in found.fix
    assert names(several(2)) == names(several(8, way="NV18")) == []


def test_r28_shared_memory_that_nccl_cannot_work_with():
    assert "0.06 GiB" in finding(several(2, shared_memory_gib=0.0625), "shared-memory").what
    assert names(machine(shared_memory_gib=0.0625)) == []


# --- R31: toolkits too old, target lists ---------------------------------------------------------------------------


def test_r31_an_old_toolkit_is_the_cause_and_not_the_gpu():
    found = finding(machine(toolkits=(toolkit(nvcc=(12, 6), headers=(12, 6)),)), "toolkit")
    assert found.severity == "error"
    assert "/opt/cuda-13.0 is 12.6, and a GPU of compute capability 12.0 needs 12.8 or newer" in found.what
    assert "falls back to Triton" in found.what and found.fix.startswith("pip install 'nvidia-cuda-nvcc")


def test_r31_old_nvcc_first_on_path_while_pip_brings_a_good_one():
    old = toolkit(home="/usr", source="PATH", nvcc=(12, 4), headers=(12, 4))
    found = finding(machine(toolkits=(old, PIP)), "toolkit-passed-over")
    assert found.severity == "note" and "PATH leads to" in found.what
    assert found.fix == "export CUDA_HOME=/venv/nvidia/cu13 PATH=/venv/nvidia/cu13/bin:$PATH"


def test_r31_dgx_spark_with_the_toolkit_before_its_own():
    found = finding(machine(gpus=(SPARK,), toolkits=(toolkit(nvcc=(12, 8), headers=(12, 8)),)), "toolkit")
    assert "compute capability 12.1 needs 12.9 or newer" in found.what


@pytest.mark.parametrize("variable", ["FLASHINFER_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"])
@pytest.mark.parametrize(
    "asked_for, reason",
    [
        ("7.0;12.0", "no longer builds for 7.0"),
        ("8.0 8.6 9.0a", "does not name this machine's GPUs (12.0)"),
        ("sm_120", "'sm_120' is no compute capability"),
        ("12.0f", None),
        ("12.0a 12.1a", None),
        ("9.0;12.0+PTX", None),
        ("12.0 ", None),
        ("Blackwell", None),
        ("", None),
    ],
)
def test_r31_target_lists_from_another_machine(variable, asked_for, reason):
    facts = machine(environment={variable: asked_for})
    if reason is None:
        assert diagnose(facts) == []
    else:
        found = finding(facts, "target-list")
        assert reason in found.what and found.fix == f"unset {variable}"


def test_r31_triton_with_an_assembler_that_does_not_know_the_gpu():
    found = finding(machine(gpus=(SPARK,), triton_ptxas=(12, 8)), "triton-ptxas")
    assert "12.1 needs 12.9" in found.what and found.fix == "export TRITON_PTXAS_PATH=/opt/cuda-13.0/bin/ptxas"
    assert names(machine(triton_ptxas=(12, 8))) == []
    named = {"TRITON_PTXAS_PATH": "/opt/cuda-13.0/bin/ptxas"}
    assert names(machine(gpus=(SPARK,), triton_ptxas=(12, 8), environment=named)) == []


# --- R32: incomplete and mixed toolkits -----------------------------------------------------------------------------


def test_r32_curand_headers_are_missing():
    found = finding(machine(toolkits=(toolkit(missing=("curand.h", "curand_kernel.h")),)), "toolkit")
    assert "has no curand.h, curand_kernel.h" in found.what and "sampling falls back to PyTorch" in found.what
    assert "attention" not in found.what and found.fix == "sudo apt-get install libcurand-dev-13-0"


def test_r32_pips_compiler_is_newer_than_its_headers():
    found = finding(machine(toolkits=(dataclasses.replace(PIP, nvcc=(13, 3)),)), "toolkit")
    assert "nvcc 13.3 and headers of 13.0, which do not compile together" in found.what
    assert "attention falls back to Triton and sampling falls back to PyTorch" in found.what
    assert "'nvidia-cuda-nvcc==13.0.*'" in found.fix


def test_r32_no_toolkit_at_all():
    found = finding(machine(toolkits=()), "toolkit")
    assert "no CUDA toolkit was found" in found.what and "nvidia-curand" in found.fix


def test_r32_a_toolkit_newer_than_the_driver():
    facts = machine(driver_cuda=(12, 8), torch_cuda=(12, 8))
    assert "the driver serves 12.8" in finding(facts, "toolkit-newer-than-driver").what


def test_r32_pytorch_newer_than_the_driver():
    found = finding(machine(driver="570.86.10", driver_cuda=(12, 8), toolkits=()), "driver-too-old")
    assert "driver 570.86.10 serves CUDA up to 12.8, and PyTorch is built with 13.0" in found.what
    assert "nvidia-driver-580-open" in found.fix


@pytest.mark.parametrize("part, name", [("host_compiler", "host-compiler"), ("ninja", "ninja")])
def test_r32_no_host_compiler_and_no_ninja(part, name):
    assert finding(machine(**{part: None}), name).severity == "error"
    assert names(machine(**{part: None}, failed={part: "TimeoutExpired"})) == []  # not known is not absent


# --- R34: caches and versions ---------------------------------------------------------------------------------------


def test_r34_modules_that_were_cut_off():
    cache = CacheFacts("/cache", 12, ("/cache/cached_ops/sampling",))
    found = finding(machine(caches=(cache,)), "cache-broken")
    assert "1 of 12" in found.what and found.fix == "rm -r /cache/cached_ops/sampling"


def test_r34_kernels_of_several_toolkits_in_one_folder():
    cache = CacheFacts("/cache", 12, (), ("/usr/local/cuda", "/usr/local/cuda-13.0"))
    found = finding(machine(caches=(cache,)), "cache-mixed")
    assert found.severity == "note" and "/usr/local/cuda, /usr/local/cuda-13.0" in found.what


def test_r34_a_build_suffix_is_no_other_version():
    assert diagnose(machine(flashinfer=FlashInferFacts("0.7.2", jit_cache="0.7.2+cu130", cubin="0.7.2"))) == []
    found = finding(machine(flashinfer=FlashInferFacts("0.7.2", jit_cache="0.7.1+cu130")), "flashinfer-versions")
    assert "flashinfer-python is 0.7.2 and flashinfer-jit-cache is 0.7.1+cu130" in found.what


# --- other things that take a first day ----------------------------------------------------------------------------


def test_no_gpu_says_so_and_needs_no_hand():
    facts = Facts(python="3.12.3")
    (found,) = diagnose(facts)
    assert found.name == "no-gpu" and found.severity == "note"
    assert as_text(facts, [found]).endswith("No GPU here; nothing else needs a hand.")


def test_rules_about_gpus_are_not_asked_without_one():
    broken = {"toolkits": (), "host_compiler": None, "ninja": None, "torch": "2.13.0+cpu", "torch_cuda": None,
              "flashinfer": FlashInferFacts(), "environment": {"TORCH_CUDA_ARCH_LIST": "7.0"}}  # fmt: skip
    assert len(names(machine(**broken))) > 4
    assert names(machine(**broken, gpus=(), driver=None)) == ["no-gpu"]


@pytest.mark.parametrize("facts", [{"driver": "580.95.05"}, {"failed": {"gpus": "RuntimeError: driver mismatch"}}])
def test_a_driver_that_lists_no_gpu(facts):
    assert finding(Facts(**facts), "driver-silent").severity == "error"


def test_pytorch_without_cuda():
    found = finding(machine(torch="2.13.0+cpu", torch_cuda=None), "torch-without-cuda")
    assert found.fix == "pip install --force-reinstall torch==2.13.0"


def test_mixed_gpus():
    facts = machine(gpus=(PRO_6000, Gpu(1, "RTX 3090", (8, 6), 24576), Gpu(2, "RTX PRO 6000", (12, 0), 97887)))
    found = finding(facts, "mixed-gpus")
    assert "8.6 at 1, 12.0 at 0,2" in found.what and found.fix.endswith("CUDA_VISIBLE_DEVICES=0,2")


@pytest.mark.parametrize("disk, slow", [
    (DiskFacts("/models", "nfs4", None, 900.0, 594.0), True),
    (DiskFacts("/models", "ext4", True, 900.0, 594.0), True),
    (DiskFacts("/models", "ext4", False, 900.0, 594.0), False),
    (DiskFacts("/models", "ext4", True, 900.0, 3.0), False),
])  # fmt: skip
def test_huge_files_on_slow_disks(disk, slow):
    assert ("slow-disk" in names(machine(disks=(disk,)))) == slow


def test_a_card_on_fewer_lanes():
    found = finding(machine(gpus=(dataclasses.replace(PRO_6000, link_width=4),)), "pcie-width")
    assert "4 of 16 PCIe lanes" in found.what and "lspci -vv -s 0000:01:00.0" in found.fix


def test_a_finding_without_a_fix_cannot_be_made():
    with pytest.raises(ValueError, match="'curand'"):
        Finding("curand", "error", "curand.h is missing", " ")


# --- the command ----------------------------------------------------------------------------------------------------


def test_recorded_facts_survive_json():
    facts = several(
        2, caches=(CacheFacts("/cache", 1, ("/a",)),), disks=(DiskFacts("/models"),), failed={"iommu": "no"}
    )
    assert from_json(json.loads(json.dumps(to_json(facts)))) == facts


@pytest.mark.parametrize(
    "value, where",
    [({"gpus": 3}, "facts.gpus"), ({"gpu": []}, "'gpu'"), ({"gpus": [{"index": 0}]}, "facts.gpus\\[0\\]")],
)
def test_facts_that_are_none_are_refused(value, where):
    with pytest.raises(ValueError, match=where):
        from_json(value)


@pytest.mark.parametrize("facts, status", [(HEALTHY, 0), (machine(toolkits=()), 1), (several(8), 0)])
def test_exit_status_says_whether_something_needs_a_hand(facts, status, tmp_path, capsys):
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"facts": to_json(facts)}))
    assert main(["--facts", str(file), "--json"]) == status
    report = json.loads(capsys.readouterr().out)
    assert all(finding["fix"] for finding in report["findings"])
    assert from_json(report["facts"]) == facts
    assert main(["--facts", str(file)]) == status
    assert all(finding["fix"] in capsys.readouterr().out for finding in report["findings"][:1])


def test_an_image_is_judged_for_gpus_that_are_not_there(tmp_path, capsys):
    file = tmp_path / "report.json"
    old = toolkit(nvcc=(12, 8), headers=(12, 8))
    file.write_text(json.dumps(to_json(machine(gpus=(), driver=None, driver_cuda=None, toolkits=(old,)))))
    assert main(["--facts", str(file), "--gpus", "9.0", "12.0"]) == 0
    assert main(["--facts", str(file), "--gpus", "12.1"]) == 1
    assert "compute capability 12.1 needs 12.9" in capsys.readouterr().out
