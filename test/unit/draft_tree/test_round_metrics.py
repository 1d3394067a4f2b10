"""Counts of rounds by depth, and times of stages."""

import pytest
import torch

from sglang.srt.speculative.draft_tree import device_clock
from sglang.srt.speculative.draft_tree.round_metrics import RoundMetrics
from sglang.srt.speculative.draft_tree.stage_times import STAGES, StageTimes


def test_rounds_are_counted_by_the_depth_they_reach():
    metrics = RoundMetrics(path_length=4, stage_times=StageTimes("cpu", every=1))
    assert metrics.summary()["accept_length"] is None
    for width, accepted in ((8, [0, 3]), (1, [1, 1])):
        metrics.verified(len(accepted), width)
        metrics.count(accepted)
    summary = metrics.summary()
    assert summary["rounds"] == 4 and summary["verified_nodes"] == 2 * 8 + 2 * 1
    assert summary["rounds_by_width"] == {"1": 2, "8": 2} and "widths" not in summary
    assert summary["accept_rate_by_depth"] == [0.75, 0.25, 0.25]
    assert summary["accept_length"] == 1 + (0 + 3 + 1 + 1) / 4
    assert summary["stage_milliseconds"] == {} and summary["timed_rounds"] == 0


def test_every_so_many_rounds_are_timed_and_unfinished_ones_forgotten(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(device_clock.time, "perf_counter", lambda: next(clock) / 1e3)
    times = StageTimes("cpu", every=2)
    assert times.mean_milliseconds() == {}
    for finished in (True, True, False, True, True):  # the first, third and fifth are timed; the third ends early
        times.start()
        for _ in STAGES if finished else STAGES[:2]:
            times.end_of_stage()
    assert times.mean_milliseconds() == pytest.approx(dict.fromkeys(STAGES, 1.0))
    assert times.rounds == 2
    assert next(clock) == 6 + 3 + 6  # the clock is read in timed rounds alone


def test_rounds_that_stamp_themselves_are_timed_as_often_and_keep_their_own_stamps():
    times = StageTimes("cpu", every=2)
    stamps = torch.zeros(1 + len(STAGES), dtype=torch.int64)
    for milliseconds in (1, 100, 3):  # the second is not timed
        stamps.copy_(torch.arange(1 + len(STAGES)) * milliseconds * 1_000_000)  # in place, as a replay does
        times.add_stamped(stamps)
    assert times.mean_milliseconds() == pytest.approx(dict.fromkeys(STAGES, 2.0))
    assert times.rounds == 2


def test_stages_and_whole_rounds_take_turns_at_being_timed():
    times = StageTimes("cpu", every=2)
    for _ in range(2):
        times.start()
        for _ in STAGES:
            times.end_of_stage()
        times.add_stamped(torch.zeros(1 + len(STAGES), dtype=torch.int64))
    times.mean_milliseconds()
    assert times.rounds == 2
