"""Stamps: in the order of the device's work, by the host's clock on a CPU, by the GPU's on a GPU, also in a graph."""

import time

import pytest
import torch

from sglang.kernels.draft_tree.stamp import stamp


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_differences_are_nanoseconds_of_the_work_between(device):
    times = torch.zeros(2, dtype=torch.int64, device=device)
    begin = time.perf_counter_ns()
    stamp(times, 0)
    if device == "cuda":
        torch.cuda._sleep(20_000_000)  # cycles: about ten milliseconds
    else:
        time.sleep(0.01)
    stamp(times, 1)
    spent = times.diff().item()
    assert 5e6 < spent < time.perf_counter_ns() - begin


@pytest.mark.gpu
def test_every_replay_of_a_graph_stamps_anew():
    times = torch.zeros(2, dtype=torch.int64, device="cuda")
    stamp(times, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stamp(times, 0)
        stamp(times, 1)
    seen = []
    for _ in range(3):
        graph.replay()
        seen += times.tolist()
    assert seen == sorted(seen) and seen[0] < seen[2] < seen[4]


@pytest.mark.parametrize("times, index", [(torch.zeros(2), 0), (torch.zeros(2, dtype=torch.int64), 2)])
def test_what_cannot_be_stamped_is_an_error(times, index):
    with pytest.raises(ValueError, match=r"give \[n\] int64 and one of n"):
        stamp(times, index)
