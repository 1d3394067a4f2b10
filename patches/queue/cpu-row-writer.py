"""Description: Write a request's KV slots into its table row without Triton on a CPU
  Every speculative reservation goes through this function, which knows Triton and upstream's compiled CPU kernels only;
  the platform interface covers reading slots, not writing them.
Origin: vendor
Forwarded: no, the platform interface would need a new hook
Touches: sglang/srt/mem_cache/allocation.py :: assign_req_to_token_pool_func
Applies-To: ==0.5.23
Remove-When: the platform interface has a hook for writing request rows
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/mem_cache/allocation.py",
        "assign_req_to_token_pool_func",
        "torch_row_writer",
        module="sglang.srt.platforms.cpu_reference.seams",
    ),
)
