"""The accepted nodes' rows to the front: KV slots of the verify window, and hidden states.

window slots  70 71 72 73 74     accepted nodes 0 2 4     moves  70 <- 70, 71 <- 72, 72 <- 74

The i-th accepted node has an id of at least i, so the rows move towards the front, and the source of one move can be
the destination of another. All sources are therefore read before the first destination is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sglang.kernels.draft_tree.dispatch import Backend, uses_triton


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


class RowMover:
    """Moves of accepted rows in one set of buffers, such as the keys and values of all layers: one launch for all.

    Holds the addresses of the buffers, so these must neither be resized nor move. Build it outside of CUDA graph
    capture; `to_front` can be captured.
    """

    def __init__(self, buffers: Sequence[torch.Tensor], *, backend: Backend | None = None) -> None:
        """Take `buffers` [slots, ...] of any dtype, all on one device, each row contiguous.

        Raises ValueError for a buffer whose rows are not contiguous.
        """
        self._buffers = list(buffers)
        self._uses_triton = uses_triton(self._buffers[0].device, backend)
        if not self._uses_triton:
            return
        for index, buffer in enumerate(self._buffers):
            if not buffer[0].is_contiguous():
                raise ValueError(
                    f"RowMover: rows of buffer {index} are not contiguous: shape {list(buffer.shape)}, strides "
                    f"{buffer.stride()}; only the first dimension may have gaps"
                )
        numbers = [
            (buffer.data_ptr(), buffer[0].nbytes, buffer.stride(0) * buffer.itemsize) for buffer in self._buffers
        ]
        self._word_bytes = 8 if all(number % 8 == 0 for row in numbers for number in row) else 1
        words = [(address, size // self._word_bytes, stride // self._word_bytes) for address, size, stride in numbers]
        self._longest_row = max(size for _, size, _ in words)
        table = torch.tensor(words, dtype=torch.int64, device=self._buffers[0].device)
        self._addresses, self._row_words, self._row_strides = table.T.contiguous()

    def to_front(self, window_slots: torch.Tensor, node_ids: torch.Tensor) -> None:
        """`move_rows(buffers, *accepted_slot_moves(window_slots, node_ids))`.

        Args:
            window_slots: [bs, nodes] int64. No slot is in the windows of two requests, unless nothing moves in them.
            node_ids: [bs, depth] int64 of AcceptedPath.
        """
        if not self._uses_triton:
            move_rows(self._buffers, *accepted_slot_moves(window_slots, node_ids))
            return
        from sglang.kernels.draft_tree.kv_compact_triton import launch_move_rows

        launch_move_rows(
            self._addresses,
            self._row_words,
            self._row_strides,
            self._longest_row,
            self._word_bytes,
            window_slots,
            node_ids,
        )


def gather_accepted(
    hidden: torch.Tensor, node_ids: torch.Tensor, depth: int | None = None, *, backend: Backend | None = None
) -> torch.Tensor:
    """[bs, depth, ...]: the rows of `hidden` [bs, nodes, ...] of the accepted nodes; row 0 behind them.

    Args:
        node_ids: [bs, at least depth] int64 of AcceptedPath.
        depth: default: the columns of `node_ids`.
        backend: see dispatch.py.
    """
    node_ids = node_ids[:, :depth]
    if uses_triton(hidden.device, backend):
        from sglang.kernels.draft_tree.kv_compact_triton import launch_gather_rows

        out = hidden.new_empty((*node_ids.shape, *hidden.shape[2:]))
        launch_gather_rows(out, hidden, node_ids)
        return out
    ids = node_ids.clamp(min=0)
    return hidden[torch.arange(len(ids), device=ids.device)[:, None], ids]
