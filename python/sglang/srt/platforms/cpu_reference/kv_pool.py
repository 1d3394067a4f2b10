"""KV pools whose slot moves are plain indexing."""

from __future__ import annotations

import torch

from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool


class CpuReferenceMHAPool(MHATokenToKVPool):
    """Keys and values of every layer, [slots, kv_heads, head_dim] each.

    Upstream warms a Triton copy kernel up whenever speculation is on; a slot move here is an indexed copy.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{**kwargs, "enable_kv_cache_copy": False})
        self.use_native_move_kv_cache = True


class CpuReferenceMLAPool(MLATokenToKVPool):
    """Latent KV of every layer, [slots, 1, kv_lora_rank + rope_head_dim]."""

    def move_kv_cache(self, tgt_loc: torch.Tensor, src_loc: torch.Tensor) -> None:
        """Copy slots ``src_loc`` to ``tgt_loc`` (both [n] int64) in every layer; sources are read first."""
        for buffer in self.kv_buffer:
            buffer[tgt_loc] = buffer[src_loc]


POOLS = {"mha": CpuReferenceMHAPool, "mla": CpuReferenceMLAPool}
