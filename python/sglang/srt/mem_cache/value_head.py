"""The width of a value head, asked of a KV pool whatever layers it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.mem_cache.memory_pool import KVCache


def value_head_dim(pool: KVCache) -> int:
    """Elements of one value head in ``pool``.

    Under pipeline parallelism a stage's pool holds a slice of the layers: layer 0 is missing from every stage but the
    first, and the offset into the slice would be negative. Pools that mix kinds of layers know their own answer;
    others are asked for the first layer that they hold.
    """
    if hasattr(pool, "get_v_head_dim"):
        return pool.get_v_head_dim()
    return pool.get_value_buffer(pool.start_layer).shape[-1]
