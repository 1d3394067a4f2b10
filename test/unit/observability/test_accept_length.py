"""The accept length that a server reports counts the rounds since its last log line too."""

from types import SimpleNamespace

import pytest

from sglang.srt.managers.scheduler_components.internal_state import SchedulerInternalStateController


def average(**counts):
    names = (
        "spec_total_num_forward_ct",
        "spec_num_forward_ct",
        "spec_total_num_accept_tokens",
        "spec_num_accept_tokens",
    )
    reporter = SimpleNamespace(**{**dict.fromkeys(names, 0), **counts})
    controller = object.__new__(SchedulerInternalStateController)
    controller.scheduler = SimpleNamespace(
        spec_algorithm=SimpleNamespace(is_none=lambda: False), metrics_reporter=reporter
    )
    return controller._average_accept_length()


def test_before_the_first_log_line():
    assert average(spec_num_forward_ct=4, spec_num_accept_tokens=10) == pytest.approx(2.5)


def test_logged_and_later_rounds_weigh_alike():
    logged = {"spec_total_num_forward_ct": 30, "spec_total_num_accept_tokens": 45}
    assert average(**logged, spec_num_forward_ct=10, spec_num_accept_tokens=35) == pytest.approx(80 / 40)


def test_without_a_round_there_is_none():
    assert average() is None
