"""Which cached positions a query row may see.

Every forward is described the same way: a request has a *prefix* of ``p`` committed columns, followed by ``n``
columns whose KV this forward writes, one per query row.  A row sees

- the prefix, or the last ``window`` columns of it that its own depth leaves;
- of the new columns: all of them (a draft block), those up to itself (decode, prefill, a chain), or those that the
  ancestor mask grants (a tree).

Worked example, one request, ``p = 2``, three rows forming the tree ``0 -> 1, 0 -> 2`` (depths 0, 1, 1)::

    column      0 1 | 2 3 4
    row 0       x x | x . .
    row 1       x x | x x .
    row 2       x x | x . x        row 2 does not see its sibling

With ``window = 1`` rows 1 and 2 (depth 1) lose columns 0 and 1: their own position is 3 and ``3 - 1 = 2`` is the
oldest visible one, which is the root.
"""

from __future__ import annotations

import torch


def visible_columns(
    prefix_lens: torch.Tensor,
    depths: torch.Tensor,
    num_columns: int,
    *,
    ancestor_mask: torch.Tensor | None = None,
    two_way: bool = False,
    window: int = -1,
) -> torch.Tensor:
    """Boolean visibility of ``num_columns`` KV columns for ``n`` query rows a request.

    Args:
        prefix_lens: [bs] int64, committed columns before the first new one.
        depths: [bs, n] int64, position of each row relative to the first row (``arange(n)`` for a chain).
        num_columns: width of the result, at least ``max(prefix_lens) + n``.
        ancestor_mask: [bs, n, n] bool, true where the column is the row's ancestor or itself; None is a chain.
        two_way: the new columns see each other entirely, whatever the window (a draft block).
        window: how many positions back a row may look; -1 is no limit.

    Returns:
        [bs, n, num_columns] bool; columns past ``prefix + n`` are false.
    """
    bs, rows = depths.shape
    device = prefix_lens.device
    columns = torch.arange(num_columns, device=device)
    new_column = columns[None, :] - prefix_lens[:, None]  # [bs, num_columns], negative inside the prefix
    in_prefix = (new_column < 0)[:, None, :].expand(bs, rows, num_columns)
    is_new = (new_column >= 0) & (new_column < rows)
    index = new_column.clamp(0, rows - 1)

    if two_way:
        granted = torch.ones((bs, rows, num_columns), dtype=torch.bool, device=device)
    elif ancestor_mask is None:
        granted = index[:, None, :] <= torch.arange(rows, device=device)[None, :, None]
    else:
        granted = ancestor_mask.gather(2, index[:, None, :].expand(bs, rows, num_columns))
    new = granted & is_new[:, None, :]

    if window >= 0:
        # Both sides are measured in depth from the root, so a tree's late rows keep their full window.
        in_prefix = in_prefix & (new_column[:, None, :] >= depths[:, :, None] - window)
        if not two_way:
            key_depth = depths.gather(1, index)
            new = new & (key_depth[:, None, :] >= depths[:, :, None] - window)
    return in_prefix | new
