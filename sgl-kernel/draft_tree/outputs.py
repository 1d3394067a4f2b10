"""Result tensors of an operation: allocated here, or given by the caller through `out` and then checked."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch

Result = TypeVar("Result", bound=NamedTuple)
Spec = tuple[tuple[tuple[int, ...], torch.dtype], ...]  # shape and dtype of every field


def empty(kind: type[Result], spec: Spec, device: torch.device | str) -> Result:
    """Uninitialized tensors for the fields of `kind`."""
    return kind(*(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in spec))


def check(operation: str, out: NamedTuple, spec: Spec) -> None:
    """Raise ValueError unless every field of `out` is contiguous with the shape and dtype of `spec`."""
    for name, tensor, (shape, dtype) in zip(out._fields, out, spec, strict=True):
        if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
            raise ValueError(
                f"{operation}: out.{name} is {tensor.dtype} {list(tensor.shape)} with strides {tensor.stride()}; "
                f"it must be {dtype} {list(shape)} and contiguous"
            )


def deliver(values: Result, out: Result | None) -> Result:
    """`values`, or `out` after they are copied to it."""
    if out is None:
        return values
    for target, value in zip(out, values, strict=True):
        target.copy_(value)
    return out
