"""R28: what is decided from a machine's peer access, and that a collective which never ends becomes an error."""

import dataclasses
import os
import sys
import time
from collections.abc import Mapping

import psutil
import pytest

from harness.machines import machine, replaced, several
from sglang.launch_plan import peers
from sglang.launch_plan.peers import plan_peers, run_collective, try_collective, visible

BAD = dataclasses.replace(several(4), peers=replaced(several(4).peers, (1, 3), (3, 1), by="CNS"))


@pytest.mark.parametrize("count", [2, 4, 8])
def test_r28_full_access_over_pcie_is_tried_and_over_nvlink_trusted(count):
    assert plan_peers(several(count), count, "none", {}).check
    trusted = plan_peers(several(count, way="NV18"), count, "none", {})
    assert (trusted.problem, trusted.check) == (None, False)


def test_r28_bad_pair_is_named_and_tried_where_it_is_used():
    plan = plan_peers(BAD, 4, "none", {})
    assert plan.problem is None and plan.check
    assert plan.way == "peer access, and through host memory between GPU1 and GPU3 (CNS), GPU3 and GPU1 (CNS)"
    assert plan_peers(BAD, 2, "none", {}).way == "peer access over PCIe"  # the first two are well
    off = plan_peers(BAD, 4, "none", {"NCCL_P2P_DISABLE": "1"})
    assert not off.check and "NCCL_P2P_DISABLE is set" in off.way


def test_r28_chosen_gpus_are_looked_at_in_their_order():
    def way(chosen: str) -> str:
        return plan_peers(visible(BAD, {"CUDA_VISIBLE_DEVICES": chosen}), 2, "none", {}).way

    assert way("3, 1") == "through host memory: no GPU has peer access"
    assert way("0,2") == "peer access over PCIe"
    assert visible(BAD, {"CUDA_VISIBLE_DEVICES": "GPU-1f"}) is BAD and visible(BAD, {}) is BAD


def test_r28_access_in_one_direction_is_partial_and_none_at_all_is_slow():
    one_way = dataclasses.replace(several(2), peers=replaced(several(2).peers, (1, 0), by="NS"))
    assert "GPU1 and GPU0 (NS)" in plan_peers(one_way, 2, "none", {}).way
    none = plan_peers(several(2, peer="NS"), 2, "none", {})
    assert none.problem is None and not none.check and "host memory" in none.way


@pytest.mark.parametrize(("facts", "environment", "why"), [
    (BAD, {}, "no peer access between GPU1 and GPU3"),
    (several(4, peer="NS"), {}, "no peer access between GPU0 and GPU1"),
    (several(4), {"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE is set"),
])  # fmt: skip
def test_r28_dispatch_backend_that_needs_peers_is_refused_by_its_flag(facts, environment, why):
    said = plan_peers(facts, 4, "deepep", environment).problem
    assert said.startswith("--moe-a2a-backend deepep: ") and why in said and "Leave the flag out" in said
    assert plan_peers(several(4), 4, "deepep", {}).problem is None


def test_one_gpu_and_no_gpu_decide_nothing():
    assert plan_peers(machine(), 1, "none", {}).way == "one GPU"
    assert plan_peers(machine(gpus=()), 2, "deepep", {}).problem is None


NEVER = [sys.executable, "-c", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"]


def test_r28_collective_that_never_ends_is_given_up_with_all_its_processes():
    begin = time.monotonic()
    assert run_collective(2, os.environ, 1.0, NEVER) == "did not end within 1 s"
    assert time.monotonic() - begin < 30
    sleeping = [child for child in psutil.Process().children(recursive=True) if "sleep" in child.name()]
    assert not sleeping


def test_r28_collective_that_fails_gives_its_last_line():
    command = [sys.executable, "-c", "raise SystemExit('ncclUnhandledCudaError: peer access is not supported')"]
    assert run_collective(2, os.environ, 60, command) == (
        "failed (ncclUnhandledCudaError: peer access is not supported)"
    )


def test_r28_collective_over_ranks_of_this_machine_works():
    command = [*peers.COLLECTIVE, "2", "gloo"]
    assert run_collective(2, {**os.environ, "OMP_NUM_THREADS": "1"}, 240, command) is None


class Hanging:
    """A collective that ends only where the switch ``helps`` is set."""

    def __init__(self, helps: str) -> None:
        self.helps, self.calls = helps, 0

    def __call__(self, gpus: int, environment: Mapping[str, str], seconds: float) -> str | None:
        self.calls += 1
        return None if self.helps in environment else f"did not end within {seconds:.0f} s"


def test_r28_hang_is_told_with_the_switch_that_was_tried(tmp_path):
    said = try_collective(several(2), 2, tmp_path, {}, Hanging("NCCL_P2P_DISABLE"))
    assert (
        said.startswith("a collective over 2 GPUs did not end within 60 s")
        and "With NCCL_P2P_DISABLE=1 it works" in said
    )
    said = try_collective(several(2), 2, tmp_path, {}, Hanging("nothing"))
    assert "Neither does it with NCCL_P2P_DISABLE=1" in said and "NCCL_SHM_DISABLE=1" in said


def test_r28_what_worked_is_tried_once_for_each_boot_and_setting(tmp_path, monkeypatch):
    collective = Hanging("PATH")
    for environment in ({"PATH": ""}, {"PATH": ""}, {"PATH": "", "NCCL_P2P_LEVEL": "SYS"}):
        assert try_collective(several(2), 2, tmp_path, environment, collective) is None
    assert collective.calls == 2
    boot = tmp_path / "boot_id"
    boot.write_text("another")
    monkeypatch.setattr(peers, "_BOOT", boot)
    try_collective(several(2), 2, tmp_path, {"PATH": ""}, collective)
    assert collective.calls == 3
