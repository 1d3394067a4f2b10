"""Description: Size the value heads of Triton attention from a layer that the stage holds
  Releases before 0.5.18 read layer 0, which later pipeline stages do not hold, in the backend and in the pool of
  hybrid models that it asks.
Origin: backport, https://github.com/sgl-project/sglang/pull/30340
Forwarded: not-needed, fixed in 0.5.18
Touches: sglang/srt/layers/attention/triton_backend.py :: TritonAttnBackend.__init__
Touches: sglang/srt/mem_cache/memory_pool.py :: HybridLinearKVPool.get_v_head_dim
Applies-To: >=0.5.11,<0.5.18
Remove-When: no release before 0.5.18 is rebased onto any more
Last-Update: 2026-11-30
"""

from patches.transforms import Present, Replace, expression

EDITS = (
    Replace(
        "sglang/srt/layers/attention/triton_backend.py",
        "TritonAttnBackend.__init__",
        expression("model_runner.token_to_kv_pool.get_value_buffer(0).shape[-1]"),
        "value_head_dim(model_runner.token_to_kv_pool)",
        module="sglang.srt.mem_cache.value_head",
        name="value_head_dim",
    ),
    Replace(
        "sglang/srt/mem_cache/memory_pool.py",
        "HybridLinearKVPool.get_v_head_dim",
        expression("self.full_kv_pool.get_value_buffer(0)"),
        "self.full_kv_pool.get_value_buffer(self.full_kv_pool.start_layer)",
    ),
)
LANDED = (
    Present(
        "sglang/srt/layers/attention/triton_backend.py",
        "TritonAttnBackend.__init__",
        expression("model_runner.token_to_kv_pool.start_layer"),
    ),
    Present(
        "sglang/srt/mem_cache/memory_pool.py",
        "HybridLinearKVPool.get_v_head_dim",
        expression("self.full_kv_pool.start_layer"),
    ),
)
