"""Description: Let the mixture of experts on torch run with expert parallelism
  Its router gives the experts of other ranks the id -1, which the torch function takes for an index: the first request
  ends the server. Quantization methods call the function by name, so no extension point reaches it.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/layers/moe/fused_moe_native.py :: moe_forward_native
Applies-To: ==0.5.23
Remove-When: upstream's moe_forward_native leaves out ids below zero
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/layers/moe/fused_moe_native.py",
        "moe_forward_native",
        "local_experts_only",
        module="sglang.srt.layers.moe.local_experts",
    ),
)
