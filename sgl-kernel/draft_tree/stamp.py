"""The time of the device at a point of its work, also inside a CUDA graph, where events cannot be read apart."""

from __future__ import annotations

import time

import torch

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton


def stamp(times: torch.Tensor, index: int, *, backend: Backend | None = None) -> None:
    """Write the present time in nanoseconds to `times[index]`, once all work before it is done.

    Args:
        times: [n] int64. Only differences mean something, and only between stamps of one device.
        index: 0 <= index < n.
        backend: see dispatch.py. The reference reads the host's clock.
    """
    if times.dtype != torch.int64 or times.dim() != 1 or not 0 <= index < len(times):
        raise ValueError(
            f"stamp: index {index} of times {list(times.shape)} {times.dtype}; give [n] int64 and one of n"
        )
    if not uses_triton(times.device, backend):
        times[index] = time.perf_counter_ns()
        return
    from sglang.kernels.draft_tree.stamp_triton import launch_stamp

    launch_stamp(times, index)
