"""Description: Let the last request of a micro-batch wait for the KV of the others
  With pipeline parallelism several micro-batches share the KV pool. One that finds it full retracts its own requests
  and aborts the last of them with HTTP 500, although the pool would hold it once the others have finished.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/managers/scheduler.py :: Scheduler.update_running_batch
Applies-To: ==0.5.23
Remove-When: upstream's retraction counts what other micro-batches hold
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, call

EDITS = (
    Replace(
        "sglang/srt/managers/scheduler.py",
        "Scheduler.update_running_batch",
        call("batch.retract_decode"),
        "retract_requests(self, batch)",
        module="sglang.srt.managers.stage_retraction",
        name="retract_requests",
    ),
)
