"""KV pool whose slot moves are plain indexing."""

from __future__ import annotations

from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool


class CpuReferenceMHAPool(MHATokenToKVPool):
    """Keys and values of every layer, [slots, kv_heads, head_dim] each.

    Upstream warms a Triton copy kernel up whenever speculation is on; a slot move here is an indexed copy.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{**kwargs, "enable_kv_cache_copy": False})
        self.use_native_move_kv_cache = True


# The latent (MLA) pool of upstream moves slots by indexing already.
POOLS = {"mha": CpuReferenceMHAPool}
