"""What a launch does with its plan: go on, refuse in one line, or say that it could not be made."""

import logging
from types import SimpleNamespace

import pytest

from harness.launches import asked
from harness.machines import several
from sglang.launch_plan import launch
from sglang.launch_plan.launch import plan_launch
from sglang.srt.utils.launch_error import LaunchError

VIEW = dict(dry_run=None, device="cuda", nnodes=1, base_gpu_id=0, gpu_id_step=1, tp_size=8, pp_size=1)


@pytest.fixture
def start(monkeypatch):
    """``start(facts, collective=..., asked=..., **flags)``: plans a launch on the machine of ``facts``."""

    def plan(facts, collective=None, asked=asked, **flags) -> list[int]:
        tried: list[int] = []

        def try_collective(found, gpus, cache, environment):
            tried.append(gpus)
            return collective

        monkeypatch.setattr(launch, "resolved_view", lambda record: SimpleNamespace(**{**VIEW, **flags}))
        monkeypatch.setattr(launch, "_asked", lambda record, view, network: asked())
        monkeypatch.setattr(launch, "read_machine", lambda only=None: facts)
        monkeypatch.setattr(launch, "try_collective", try_collective)
        monkeypatch.setattr(launch, "default_cache", lambda: None)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
        plan_launch(None)
        return tried

    return plan


def test_launch_that_fits_tries_a_collective_over_pcie_and_goes_on(start):
    assert start(several(8)) == [8]
    assert start(several(8, way="NV18")) == []


def test_launch_that_does_not_fit_is_refused(start):
    with pytest.raises(LaunchError, match="8 GPUs are needed and there are 2"):
        start(several(2))


def test_r28_hanging_collective_ends_the_launch_with_its_flags(start):
    with pytest.raises(LaunchError, match="^--tp-size 8 --pp-size 1: a collective hangs"):
        start(several(8), collective="a collective hangs")


def test_gpus_are_those_that_ranks_take(start):
    with pytest.raises(LaunchError, match="8 GPUs are needed and there are 4"):
        start(several(8), gpu_id_step=2)


def test_launches_elsewhere_are_left_alone(start):
    assert start(several(2), device="cpu") == start(several(2), nnodes=2) == []


def test_model_that_the_plan_cannot_read_is_served_with_a_warning(start, caplog):
    def unreadable():
        raise AttributeError("no head_dim")

    with caplog.at_level(logging.WARNING):
        assert start(several(8), asked=unreadable) == []
    assert "This launch is not checked for memory and peer access: AttributeError: no head_dim" in caplog.text


def test_dry_run_ends_with_the_verdict(start, capsys):
    for machine, status in ((several(8), 0), (several(2), 1)):
        with pytest.raises(SystemExit) as ended:
            start(machine, dry_run="here")
        assert ended.value.code == status and "Parallel layout" in capsys.readouterr().out


def test_dry_run_with_a_file_that_is_no_report_is_one_line(start, tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text("[]")
    with pytest.raises(LaunchError, match="--dry-run .*facts.json: .*Give the output of python -m sglang.cuda_doctor"):
        start(several(8), dry_run=str(facts))
