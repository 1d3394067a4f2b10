"""The accepted nodes' rows to the front: KV slots of the verify window, and hidden states.

window slots  70 71 72 73 74     accepted nodes 0 2 4     moves  70 <- 70, 71 <- 72, 72 <- 74

The i-th accepted node has an id of at least i, so the rows move towards the front, and the source of one move can be
the destination of another. All sources are therefore read before the first destination is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def accepted_slot_moves(window_slots: torch.Tensor, node_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Destination and source slots, [bs * depth] int64 each, request after request.

    Args:
        window_slots: [bs, nodes] int64, the KV slots that this round's verify wrote, in the order of node ids.
        node_ids: [bs, depth] int64 of AcceptedPath, depth <= nodes. Behind the accepted nodes (-1) a slot moves onto
            itself.
    """
    destination = window_slots[:, : node_ids.shape[1]]
    source = torch.where(node_ids >= 0, window_slots.gather(1, node_ids.clamp(min=0)), destination)
    return destination.reshape(-1), source.reshape(-1)


def move_rows(buffers: Sequence[torch.Tensor], destination: torch.Tensor, source: torch.Tensor) -> None:
    """Copy row `source[i]` to row `destination[i]` in each of `buffers` [slots, ...], all reads before all writes.

    Args:
        buffers: tensors of any dtype and row shape, changed in place.
        destination: [moves] int64. Equal destinations must have equal sources.
        source: [moves] int64.
    """
    for buffer in buffers:
        buffer[destination] = buffer[source]


def gather_accepted(hidden: torch.Tensor, node_ids: torch.Tensor, depth: int | None = None) -> torch.Tensor:
    """[bs, depth, ...]: the rows of `hidden` [bs, nodes, ...] of the accepted nodes; row 0 behind them.

    Args:
        node_ids: [bs, at least depth] int64 of AcceptedPath.
        depth: default: the columns of `node_ids`.
    """
    ids = node_ids[:, :depth].clamp(min=0)
    return hidden[torch.arange(len(ids), device=ids.device)[:, None], ids]
