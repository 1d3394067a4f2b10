"""Description: Let a DFLASH decode round run on a device without streams
  The round marks the sequence lengths as used by the current stream; on a CPU tensor torch raises, so that every decode
  round ends the server. Other speculative workers guard the same call.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2.forward_batch_generation
Applies-To: ==0.5.23
Remove-When: upstream guards the call by device
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, expression

EDITS = (
    Replace(
        "sglang/srt/speculative/dflash_worker_v2.py",
        "DFlashWorkerV2.forward_batch_generation",
        expression("batch.seq_lens.record_stream"),
        "stream_recorder(batch.seq_lens)",
        module="sglang.srt.platforms.cpu_reference.seams",
        name="stream_recorder",
    ),
)
