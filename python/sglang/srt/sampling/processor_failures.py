"""A custom logit processor that fails ends its own request, not the server.

A processor is code of one request's sender, and it runs in the model process, in a batch with everybody else's
requests. An exception there would end the process. Here the request that it belongs to is answered with HTTP 400, and
the batch goes on. With tensor parallelism every rank runs the processor and must see the same failure. What cannot be
caught is a failure on the device, such as an index beyond the vocabulary on a GPU.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.sampling.sampling_batch_info import ProcessorEntry, SamplingBatchInfo

logger = logging.getLogger(__name__)


def remember_requests(batch: ScheduleBatch) -> None:
    """Let the sampling information of the coming forward know whose rows it holds; only where processors need it."""
    info = batch.sampling_info
    if info is not None and info.has_custom_logit_processor:
        # Weak, as a request's other references from its batch are: it must die when it is finished.
        info.requests = [weakref.ref(request) for request in batch.reqs]


def run_processor(
    entry: ProcessorEntry,
    selected: torch.Tensor,
    params: Sequence[dict[str, Any] | None],
    info: SamplingBatchInfo,
    select_again: Callable[[], torch.Tensor],
) -> torch.Tensor:
    """What the processor of ``entry`` makes of its rows; the rows of a request that it fails for stay as they were.

    Args:
        selected: [rows, vocab] logits, a copy that the processor may change.
        params: one per row of ``selected``.
        info: has as many rows, or rows for as many nodes per request, as the forward has requests.
        select_again: returns a fresh copy like ``selected``.

    Returns:
        [rows, vocab] logits.
    """
    try:
        return _checked(entry.processor, selected, params)
    except Exception as error:
        owners = _owners(entry, len(params), info)
        if owners is None:
            raise
        if len(set(owners)) == 1:
            _abort(info.requests[owners[0]](), entry.processor, error)
            return select_again()
    # Somebody's rows are at fault: those of each request alone show whose.
    result = select_again()
    for owner in sorted(set(owners)):
        rows = [row for row, request in enumerate(owners) if request == owner]
        try:
            part = _checked(entry.processor, result[rows], [params[row] for row in rows])
        except Exception as error:
            _abort(info.requests[owner](), entry.processor, error)
        else:
            result[rows] = part.to(result.dtype)
    return result


def _checked(processor: Callable, logits: torch.Tensor, params: Sequence[dict[str, Any] | None]) -> torch.Tensor:
    shape = logits.shape
    result = processor(logits, params)
    if not isinstance(result, torch.Tensor) or result.shape != shape:
        found = f"of shape {list(result.shape)}" if isinstance(result, torch.Tensor) else f"a {type(result).__name__}"
        raise TypeError(f"it must return a tensor of shape {list(shape)}, its result is {found}")
    return result


def _owners(entry: ProcessorEntry, rows: int, info: SamplingBatchInfo) -> list[int] | None:
    """Per row that the processor gets, the number of its request in the batch; None where that is not known."""
    if not info.requests or len(info) % len(info.requests):
        return None
    nodes = len(info) // len(info.requests)  # more than one where a row stands for a node of a draft
    each = rows // len(entry.rows)
    return [row // nodes for row in entry.rows for _ in range(each)]


def _abort(request: Req | None, processor: Callable, error: Exception) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    if request is None or request.finished() or request.to_finish is not None:
        return
    message = f"custom_logit_processor {type(processor).__name__} failed: {type(error).__name__}: {error}"
    logger.error("Request %s is ended: %s", request.rid, message, exc_info=error)
    request.to_finish = FINISH_ABORT(message, HTTPStatus.BAD_REQUEST, "BadRequestError")
