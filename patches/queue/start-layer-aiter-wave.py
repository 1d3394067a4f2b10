"""Description: Size the value heads of AITER and Wave from a layer that the stage holds
  Both read layer 0, which later pipeline stages do not hold: an IndexError at start, or another layer's buffer.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/layers/attention/aiter_backend.py :: AiterAttnBackend.__init__
Touches: sglang/srt/layers/attention/wave_backend.py :: WaveAttnBackend.__init__
Applies-To: >=0.5.11,<0.6
Remove-When: neither backend asks the KV pool for layer 0
Last-Update: 2026-11-30
"""

from patches.transforms import Present, Replace, expression

_LAYER_ZERO = expression("model_runner.token_to_kv_pool.get_value_buffer(0).shape[-1]")


def _from_own_layer(file: str, scope: str) -> Replace:
    return Replace(
        file,
        scope,
        _LAYER_ZERO,
        "value_head_dim(model_runner.token_to_kv_pool)",
        module="sglang.srt.mem_cache.value_head",
        name="value_head_dim",
    )


EDITS = (
    _from_own_layer("sglang/srt/layers/attention/aiter_backend.py", "AiterAttnBackend.__init__"),
    _from_own_layer("sglang/srt/layers/attention/wave_backend.py", "WaveAttnBackend.__init__"),
)
LANDED = (
    Present(
        "sglang/srt/layers/attention/wave_backend.py",
        "WaveAttnBackend.__init__",
        expression("model_runner.token_to_kv_pool.start_layer"),
    ),
)
