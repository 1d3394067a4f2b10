"""Decorators and calls that the patch queue inserts where upstream offers a CPU device no seam."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from sglang.srt.platforms.cpu_reference.cache_slots import write_row_slots


def _on_cpu_reference() -> bool:
    from sglang.srt.platforms import current_platform
    from sglang.srt.platforms.cpu_reference import PLATFORM_NAME

    return current_platform.device_name == PLATFORM_NAME


def torch_row_writer(triton_writer: Callable) -> Callable:
    """Wrap ``assign_req_to_token_pool_func``: CPU tensors take the torch writer, all others upstream's kernel."""

    @functools.wraps(triton_writer)
    def write(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, batch_size):
        if req_to_token.device.type == "cpu" and _on_cpu_reference():
            write_row_slots(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc)
        else:
            triton_writer(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, batch_size)

    return write


def torch_last_slot(dispatcher: Callable) -> Callable:
    """Wrap ``get_last_loc``, which picks Triton by attention backend name and so cannot know ours."""

    @functools.wraps(dispatcher)
    def last_slot(req_to_token, req_pool_indices_tensor, prefix_lens_tensor):
        if req_to_token.device.type != "cpu" or not _on_cpu_reference():
            return dispatcher(req_to_token, req_pool_indices_tensor, prefix_lens_tensor)
        last = req_to_token[req_pool_indices_tensor, (prefix_lens_tensor - 1).clamp(min=0)]
        return torch.where(prefix_lens_tensor > 0, last.to(prefix_lens_tensor.dtype), -1)

    return last_slot


def stream_recorder(tensor: torch.Tensor) -> Callable[[object], None]:
    """``tensor.record_stream`` where the device has streams; a CPU tensor would raise, so it gets a no-op."""
    return (lambda stream: None) if tensor.device.type == "cpu" else tensor.record_stream
