"""Attention of a verify: the few new rows of each request over a long prefix, and over each other.

All rows of a request see its whole prefix. Of the new rows they see what the mask says: of a tree its node and the
node's ancestors, of a chain the rows before, of a draft's block all.

With grouped queries the heads of one group read the same keys, so nodes and heads of a group are rows of one tile: a
tree of 33 nodes and four heads a group is 132 rows, and keys are read once for as many as fit a tile. The prefix is cut
into splits that run side by side where requests and heads alone would leave the device idle; their results are merged
by their log-sum-exps, as in flash decoding (https://pytorch.org/blog/flash-decoding/).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import torch

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton

Visible = Literal["all", "earlier", "tree"]


class NewRows(NamedTuple):
    """What a verify adds: contiguous rows of all requests, one request after the other."""

    queries: torch.Tensor  # [rows, heads, head_dim]
    keys: torch.Tensor  # [rows, kv_heads, head_dim], heads a multiple of kv_heads
    values: torch.Tensor  # [rows, kv_heads, value_dim]
    start: torch.Tensor  # [bs + 1] int, the first row of each request, and behind the last
    most: int  # rows of the request that has the most


class Prefix(NamedTuple):
    """Keys and values of the tokens before, in the slots of a pool."""

    keys: torch.Tensor  # [slots, kv_heads, head_dim]
    values: torch.Tensor  # [slots, kv_heads, value_dim]
    slots: torch.Tensor  # [tokens or more] int64, request after request
    start: torch.Tensor  # [bs + 1] int, the first token of each request in `slots`, and behind the last
    key_scale: float = 1.0  # what the pool's keys are multiplied by, as the next for values
    value_scale: float = 1.0


class Mask(NamedTuple):
    """Which new rows see each other, and for a tree where that is written."""

    visible: Visible
    # For "tree": per request new rows times (prefix + new rows) cells, row-major; columns of the prefix are not read.
    cells: torch.Tensor | None = None  # flat, bool or uint8
    start: torch.Tensor | None = None  # [bs + 1] int64, the first cell of each request


def verify_attention(
    out: torch.Tensor,
    new: NewRows,
    prefix: Prefix,
    mask: Mask,
    scale: float,
    logit_cap: float = 0.0,
    *,
    backend: Backend | None = None,
) -> None:
    """Fill `out` [rows, heads, value_dim] of the queries' dtype.

    Args:
        new, prefix, mask: see there. A row that sees nothing, as in a graph's padding, becomes 0.
        scale: what products of queries and keys are multiplied by.
        logit_cap: if positive, scaled products x become cap * tanh(x / cap).
        backend: see dispatch.py.

    Products of a pool in another dtype than the queries' are computed in the queries'.
    """
    if uses_triton(out.device, backend):
        from sglang.kernels.draft_tree.verify_attention_triton import launch_verify_attention

        launch_verify_attention(out, new, prefix, mask, scale, logit_cap)
        return
    group = new.queries.shape[1] // new.keys.shape[1]
    of_rows, of_tokens = pairwise(new.start.tolist()), pairwise(prefix.start.tolist())
    for request, ((first, end), (token, last_token)) in enumerate(zip(of_rows, of_tokens, strict=True)):
        slots = prefix.slots[token:last_token]
        dtype = new.queries.dtype
        keys = torch.cat([prefix.keys[slots].to(dtype).float() * prefix.key_scale, new.keys[first:end].float()])
        values = torch.cat([prefix.values[slots].to(dtype).float() * prefix.value_scale, new.values[first:end].float()])
        keys, values = (rows.repeat_interleave(group, dim=1) for rows in (keys, values))
        logits = torch.einsum("qhd,khd->hqk", new.queries[first:end].float(), keys) * scale
        if logit_cap > 0:
            logits = logit_cap * torch.tanh(logits / logit_cap)
        seen = _seen(mask, request, end - first, len(slots), logits.device)
        weights = torch.softmax(logits.masked_fill(~seen, -torch.inf), dim=-1).nan_to_num(0.0)
        out[first:end] = torch.einsum("hqk,khd->qhd", weights, values).to(out.dtype)


def _seen(mask: Mask, request: int, rows: int, prefix: int, device: torch.device) -> torch.Tensor:
    """[rows, prefix + rows] bool."""
    seen = torch.ones(rows, prefix + rows, dtype=torch.bool, device=device)
    if mask.visible == "earlier":
        return seen.tril(prefix)
    if mask.visible == "tree":
        first = int(mask.start[request])
        seen[:, prefix:] = mask.cells[first : first + seen.numel()].view(seen.shape)[:, prefix:].bool()
    return seen
