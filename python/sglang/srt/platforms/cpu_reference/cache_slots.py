"""Slot bookkeeping between request rows and KV slots, batched.

A request owns one row of ``req_to_token`` [rows, row_len] (int32): column ``i`` holds the KV slot of its token ``i``.
"""

from __future__ import annotations

import torch


def window_slots(
    *,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    draft_token_num: int,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    device: torch.device | str,
    batch_size: int,
) -> torch.Tensor:
    """Slots of columns ``start_offset : start_offset + draft_token_num`` of each request's row.

    Args:
        req_pool_indices: [bs] row of each request.
        start_offset: [bs] first column; ``end_offset`` is always ``draft_token_num`` further for a verify window.

    Returns:
        [bs * draft_token_num] int64, request-major.
    """
    columns = start_offset.to(torch.int64)[:, None] + torch.arange(draft_token_num, device=device)
    return req_to_token[req_pool_indices.to(torch.int64)[:, None], columns].reshape(-1).to(torch.int64)


def write_row_slots(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write newly allocated slots into columns ``[start_offset, end_offset)`` of each request's row.

    Args:
        req_pool_indices: [bs] row of each request.
        req_to_token: [rows, row_len], written in place.
        start_offset, end_offset: [bs] column range of each request; ranges may differ in length.
        slots: [sum(end_offset - start_offset)] in request order.

    Raises:
        ValueError: a range ends beyond the row; the write would land in the next request's row.
    """
    lengths = (end_offset - start_offset).to(torch.int64)
    total = int(lengths.sum())
    if total == 0:
        return
    row_len = req_to_token.shape[1]
    if int(end_offset.max()) > row_len:
        raise ValueError(
            f"a request's KV range ends at column {int(end_offset.max())}, but a row of the request table has {row_len}"
        )
    rows = torch.repeat_interleave(req_pool_indices.to(torch.int64), lengths)
    first_of_request = torch.repeat_interleave(torch.cumsum(lengths, 0) - lengths, lengths)
    columns = torch.repeat_interleave(start_offset.to(torch.int64), lengths) + torch.arange(total) - first_of_request
    req_to_token[rows, columns] = slots[:total].to(req_to_token.dtype)
