"""Description: Refuse a target whose output head a DFLASH draft cannot use, when the server starts
  Drafts are read off the target's head. A quantized head that upstream cannot use ended the model process with the
  first request, or with the first capture of a graph, and without the type of the head.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2.alloc_memory_pool
Applies-To: ==0.5.23
Remove-When: upstream checks the head before it allocates the KV pool
Last-Update: 2026-11-30
"""

from patches.transforms import Insert

EDITS = (
    Insert(
        "sglang/srt/speculative/dflash_worker_v2.py",
        "DFlashWorkerV2.alloc_memory_pool",
        "check_borrowed_head(self)",
        module="sglang.srt.speculative.borrowed_head",
        name="check_borrowed_head",
    ),
)
