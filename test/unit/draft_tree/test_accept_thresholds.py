"""Acceptance thresholds that no rule could honour are refused by name: at launch, and when they change at run time."""

from types import SimpleNamespace

import pytest

from sglang.srt.managers.scheduler_components.internal_state import SchedulerInternalStateController, UpdateRejected
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative import dflash_utils
from sglang.srt.speculative.draft_tree.accept_thresholds import check_accept_thresholds
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.launch_error import LaunchError

from . import batches


@pytest.fixture(params=["kernel", "no kernel"])
def has_kernel(request, monkeypatch) -> bool:
    monkeypatch.setattr(dflash_utils, "is_dflash_sampling_verify_available", lambda: request.param == "kernel")
    return request.param == "kernel"


def launch(**changes) -> None:
    check_accept_thresholds(ServerArgs(model_path="dummy", speculative_algorithm="DFLASH", **changes))


def test_the_lossless_default_is_accepted_everywhere(has_kernel):
    launch()
    launch(enable_deterministic_inference=True)


@pytest.mark.parametrize("field", ["speculative_accept_threshold_single", "speculative_accept_threshold_acc"])
def test_a_threshold_needs_a_device_with_the_kernel(has_kernel, field):
    if has_kernel:
        launch(**{field: 0.5})
        return
    with pytest.raises(LaunchError, match=f"--{field.replace('_', '-')} 0.5: this device has no sampling kernel"):
        launch(**{field: 0.5})


def test_a_threshold_contradicts_seeded_draws(has_kernel):
    with pytest.raises(LaunchError, match="--speculative-accept-threshold-acc 0.9: with deterministic inference"):
        launch(speculative_accept_threshold_acc=0.9, enable_deterministic_inference=True)


@pytest.mark.parametrize("algorithm, refused", [("DFLASH", True), ("EAGLE", False)])
def test_a_running_server_refuses_it_as_well(has_kernel, algorithm, refused):
    controller = SchedulerInternalStateController.__new__(SchedulerInternalStateController)
    scheduler = SimpleNamespace(spec_algorithm=SpeculativeAlgorithm.from_string(algorithm))
    controller.scheduler = scheduler
    controller._has_active_sampling_mask_request = lambda: False
    with batches.published():
        controller._validate_accept_threshold("speculative_accept_threshold_acc", 1.0)
        if refused and not has_kernel:
            with pytest.raises(
                UpdateRejected, match="speculative_accept_threshold_acc to 0.7 is rejected: this device"
            ):
                controller._validate_accept_threshold("speculative_accept_threshold_acc", 0.7)
        else:
            controller._validate_accept_threshold("speculative_accept_threshold_acc", 0.7)
