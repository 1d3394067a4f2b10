"""Description: Read all KV rows of a move before the first is written
  The rows that an accepted path moves to the front are spread over the warps of a block, the source of one is often the
  destination of another, and nothing makes a warp wait until the others have read. Triton puts no barrier between a
  load and a store of global memory by itself.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/kernels/ops/kvcache/cache_move.py :: copy_all_layer_kv_cache_tiled
Applies-To: ==0.5.23
Remove-When: copy_all_layer_kv_cache_tiled has a barrier between its load and its store
Last-Update: 2026-11-30
"""

from patches.transforms import Insert, before, call

EDITS = (
    Insert(
        "sglang/kernels/ops/kvcache/cache_move.py",
        "copy_all_layer_kv_cache_tiled",
        "tl.debug_barrier()",
        where=before(call("tl.store")),
    ),
)
