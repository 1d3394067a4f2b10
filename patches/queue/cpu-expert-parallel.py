"""Description: Serve expert parallelism on a CPU
  A token's expert of another rank has the id -1, which upstream's torch code for experts takes for an index: the server
  ends with its first forward. It is a function, without an extension point.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/layers/moe/fused_moe_native.py :: moe_forward_native
Applies-To: ==0.5.23
Remove-When: upstream's moe_forward_native takes expert ids of other ranks
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/layers/moe/fused_moe_native.py",
        "moe_forward_native",
        "skips_remote_experts",
        module="sglang.srt.layers.moe_local_experts",
    ),
)
