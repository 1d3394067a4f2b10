"""Description: Size the triton backend's graph buffers of a verify by requests
  Upstream sizes them by tokens times the longest context, which grows with the verify width: a verify of 4096 tokens at
  a context of 262144 holds 8.6 GB for slots that its requests read in common, besides partial results that only
  decoding reads.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/layers/attention/triton_backend.py :: TritonAttnBackend.init_cuda_graph_state
Applies-To: ==0.5.23
Remove-When: TritonAttnBackend.init_cuda_graph_state sizes cuda_graph_kv_indices by max_bs where a graph verifies
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

EDITS = (
    Decorate(
        "sglang/srt/layers/attention/triton_backend.py",
        "TritonAttnBackend.init_cuda_graph_state",
        "sizes_by_requests",
        module="sglang.srt.speculative.draft_tree.verify_buffers",
    ),
)
