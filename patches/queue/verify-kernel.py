"""Description: Let verifies on triton run with split attention
  Upstream verifies with the attention kernel of prefills: a program a head, which walks through the whole prefix, with
  tiles that the few rows of a verify leave nearly empty. Its own split kernel for verifies serves one AMD chip and
  chains alone.
Origin: vendor
Forwarded: no, to be measured first
Touches: sglang/srt/layers/attention/triton_backend.py :: TritonAttnBackend._forward_extend_kernel
Applies-To: ==0.5.23
Remove-When: TritonAttnBackend verifies trees on NVIDIA GPUs with a kernel that splits the prefix
Last-Update: 2026-12-04
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/layers/attention/triton_backend.py",
        "TritonAttnBackend._forward_extend_kernel",
        "verifies_in_splits",
        module="sglang.srt.speculative.draft_tree.verify_kernel",
    ),
)
