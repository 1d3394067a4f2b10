"""Description: Count every emitted token into the penalties, on the device and once
  A DFLASH round emits several tokens and nothing counts them: the speculative branch of decode preparation leaves
  before the count. Plain decoding with overlap scheduling counts one step late, from the end of the prompt on, and a
  retracted request starts again from zero. The order of adding and scaling penalties changed from one start to the
  next. Penalizers have no extension point between the scheduler's batch and the copy that a forward gets.
Origin: vendor
Forwarded: no, reported as sgl-project/sglang issue 28180 for DFLASH alone
Touches: sglang/srt/managers/scheduler.py :: Scheduler._forward_isolation
Touches: sglang/srt/managers/schedule_batch.py :: ScheduleBatch.cumulate_penalty_output_tokens
Touches: sglang/srt/sampling/sampling_batch_info.py :: SamplingBatchInfo
Touches: sglang/srt/sampling/sampling_batch_info.py :: SamplingBatchInfo.adjusted_from_schedule_batch
Touches: sglang/srt/sampling/penaltylib/orchestrator.py :: BatchedPenalizerOrchestrator.__init__
Touches: sglang/srt/speculative/dflash_worker_v2.py :: DFlashWorkerV2.forward_batch_generation
Touches: sglang/srt/speculative/dflash_disaggregation.py :: build_dflash_disagg_draft_input
Applies-To: ==0.5.23
Remove-When: upstream's penalties count every emitted token with speculation, with overlap and after retraction
Last-Update: 2026-11-30
"""

from patches.transforms import AddField, Decorate, Insert, Replace, call

_PACKAGE = "sglang.srt.speculative.draft_tree"
_EMITTED = f"{_PACKAGE}.emitted_tokens"
_COUNTS = f"{_PACKAGE}.penalty_counts"

EDITS = (
    Replace(
        "sglang/srt/managers/scheduler.py",
        "Scheduler._forward_isolation",
        call("sched_sampling_info.copy_for_forward"),
        "forward_sampling_info(sched_sampling_info, batch, self.schedule_stream if overlap else None)",
        module=_EMITTED,
        name="forward_sampling_info",
    ),
    Decorate(
        "sglang/srt/managers/schedule_batch.py",
        "ScheduleBatch.cumulate_penalty_output_tokens",
        "counts_once",
        module=_EMITTED,
    ),
    AddField(
        "sglang/srt/sampling/sampling_batch_info.py",
        "SamplingBatchInfo",
        "emitted_history: Optional[Any] = None",
    ),
    Insert(
        "sglang/srt/sampling/sampling_batch_info.py",
        "SamplingBatchInfo.adjusted_from_schedule_batch",
        "count_earlier_output(self, batch)",
        module=_COUNTS,
        name="count_earlier_output",
        where="start",
    ),
    Insert(
        "sglang/srt/sampling/penaltylib/orchestrator.py",
        "BatchedPenalizerOrchestrator.__init__",
        "penalizers = additive_first(penalizers)",
        module="sglang.srt.sampling.penalizer_order",
        name="additive_first",
        where="start",
    ),
    Decorate(
        "sglang/srt/speculative/dflash_worker_v2.py",
        "DFlashWorkerV2.forward_batch_generation",
        "remembers_emitted_tokens",
        module=_EMITTED,
    ),
    Decorate(
        "sglang/srt/speculative/dflash_disaggregation.py",
        "build_dflash_disagg_draft_input",
        "remembers_transferred_token",
        module=_EMITTED,
    ),
)
