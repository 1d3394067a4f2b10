"""An accepted path's rows to the front of the target's KV cache, in one launch for all layers and requests.

Upstream's move has one program per layer and tile for the rows of all requests, one after the other, and with latent
attention two launches per layer. Pools whose rows are more than plain rows of buffers, such as those of other packages
or with scales beside the rows, move them themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.kv_compact import RowMover, accepted_slot_moves
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool

if TYPE_CHECKING:
    from sglang.srt.mem_cache.memory_pool import KVCache


class KVMoves:
    """Moves in one pool.

    Args:
        pool: the target's; its buffers stay where they are from now on. Not to be made during a graph capture.
    """

    def __init__(self, pool: KVCache) -> None:
        self._pool = pool
        buffers = plain_rows(pool)
        self._mover = RowMover(buffers) if buffers else None

    def to_front(self, slots: torch.Tensor, node_ids: torch.Tensor) -> None:
        """Move the rows of the accepted nodes to the first of `slots`.

        Args:
            slots: [bs, nodes] int64, what the round's verify wrote, in the order of node ids.
            node_ids: [bs, depth] int64 of AcceptedPath.
        """
        if self._mover is None:
            self._pool.move_kv_cache(*accepted_slot_moves(slots, node_ids))
        else:
            self._mover.to_front(slots, node_ids)


def plain_rows(pool: KVCache) -> list[torch.Tensor]:
    """Buffers [slots, ...] of `pool` whose rows are all that a slot holds; empty where it keeps slots otherwise."""
    kind = type(pool)  # a subclass may keep more, or keep it elsewhere
    if kind is MHATokenToKVPool and not pool.use_hnd and pool.native_k_scale_buffer is None:
        buffers = pool._slot_move_pointer_buffers()
    elif kind is MLATokenToKVPool:
        buffers = list(pool.kv_buffer)
    else:
        return []
    plain = all(buffer.is_cuda and buffer.shape[0] == pool.size + pool.page_size for buffer in buffers)
    return buffers if plain and all(buffer[0].is_contiguous() for buffer in buffers) else []
