"""Slot bookkeeping against loops, on tables filled with a sentinel so that a stray write shows."""

import random
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.platforms import cpu_reference
from sglang.srt.platforms.cpu_reference import seams
from sglang.srt.platforms.cpu_reference.cache_slots import window_slots, write_row_slots

SENTINEL = -7


def test_window_slots_reads_each_requests_window_in_order():
    table = torch.arange(40, dtype=torch.int32).view(4, 10)
    slots = window_slots(
        req_pool_indices=torch.tensor([3, 1]),
        req_to_token=table,
        start_offset=torch.tensor([2, 5]),
        end_offset=torch.tensor([5, 8]),
        batch_size=2,
        draft_token_num=3,
        device="cpu",
    )
    assert slots.tolist() == [32, 33, 34, 15, 16, 17] and slots.dtype == torch.int64


@pytest.mark.parametrize("seed", range(10))
def test_write_row_slots_writes_the_ranges_and_nothing_else(seed):
    rng = random.Random(seed)
    table = torch.full((6, 12), SENTINEL, dtype=torch.int32)
    expected = table.clone()
    rows = rng.sample(range(6), rng.randrange(1, 6))
    starts = [rng.randrange(0, 12) for _ in rows]
    ends = [rng.randrange(start, 13) for start in starts]
    slots = list(range(100, 100 + sum(end - start for start, end in zip(starts, ends, strict=True))))
    remaining = iter(slots)
    for row, start, end in zip(rows, starts, ends, strict=True):
        for column in range(start, end):
            expected[row, column] = next(remaining)
    write_row_slots(torch.tensor(rows), table, torch.tensor(starts), torch.tensor(ends), torch.tensor(slots))
    assert torch.equal(table, expected)


def test_a_range_beyond_the_row_is_refused_before_anything_is_written():
    table = torch.full((2, 4), SENTINEL, dtype=torch.int32)
    with pytest.raises(ValueError, match="ends at column 6.*has 4"):
        write_row_slots(torch.tensor([0]), table, torch.tensor([2]), torch.tensor([6]), torch.arange(4))
    assert (table == SENTINEL).all()


def test_the_seams_leave_other_platforms_to_upstream(monkeypatch):
    called = []
    writer = seams.torch_row_writer(lambda *arguments: called.append("writer"))
    looker = seams.torch_last_slot(lambda *arguments: called.append("looker"))
    monkeypatch.setattr(seams, "_on_cpu_reference", lambda: False)
    table, one = torch.zeros((1, 4), dtype=torch.int32), torch.tensor([0])
    writer(one, table, one, one + 1, one, 1)
    looker(table, one, one)
    assert called == ["writer", "looker"]


def test_last_slot_is_minus_one_without_a_prefix(monkeypatch):
    monkeypatch.setattr(seams, "_on_cpu_reference", lambda: True)
    table = torch.arange(10, 18, dtype=torch.int32).view(2, 4)
    last = seams.torch_last_slot(lambda *arguments: None)(table, torch.tensor([1, 0]), torch.tensor([3, 0]))
    assert last.tolist() == [16, -1]


def test_stream_recorder_is_harmless_on_a_cpu_tensor():
    tensor = torch.zeros(1)
    with pytest.raises((RuntimeError, NotImplementedError)):
        tensor.record_stream(torch.cpu.current_stream())
    assert seams.stream_recorder(tensor)(torch.cpu.current_stream()) is None


def activation(monkeypatch, *, accelerator=None, others=(), **environment):
    for name in ("SGLANG_PLATFORM", "SGLANG_USE_CPU_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SimpleNamespace(type=accelerator))
    names = ["cpu_reference", *others]
    monkeypatch.setattr(cpu_reference, "entry_points", lambda group: [SimpleNamespace(name=name) for name in names])
    return cpu_reference.activate()


def test_the_platform_is_taken_without_an_accelerator_and_never_with_one(monkeypatch):
    assert activation(monkeypatch) == cpu_reference.PLATFORM_CLASS
    assert activation(monkeypatch, accelerator="cuda") is None
    assert activation(monkeypatch, SGLANG_USE_CPU_ENGINE="1") is None
    assert activation(monkeypatch, others=["vendor"]) is None
    assert activation(monkeypatch, others=["vendor"], SGLANG_PLATFORM="cpu_reference") == cpu_reference.PLATFORM_CLASS


def test_asking_for_the_platform_beside_an_accelerator_says_how_to_hide_it(monkeypatch):
    with pytest.raises(RuntimeError, match="CUDA_VISIBLE_DEVICES=''"):
        activation(monkeypatch, accelerator="cuda", SGLANG_PLATFORM="cpu_reference")
