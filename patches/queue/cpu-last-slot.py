"""Description: Look up a request's last KV slot without Triton on a CPU
  The choice between the Triton and the torch version is made by attention backend name, so a backend that a platform
  plugin registers always gets Triton.
Origin: vendor
Forwarded: no, upstream could ask capabilities.supports_triton here as it does elsewhere
Touches: sglang/srt/mem_cache/allocation.py :: get_last_loc
Applies-To: ==0.5.23
Remove-When: get_last_loc asks the platform whether Triton can launch
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/mem_cache/allocation.py",
        "get_last_loc",
        "torch_last_slot",
        module="sglang.srt.platforms.cpu_reference.seams",
    ),
)
