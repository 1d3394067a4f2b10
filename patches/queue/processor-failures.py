"""Description: End the request whose custom logit processor fails, and not the server
  The processor runs in the model process, in a batch with other requests; an exception in it, or a result of another
  shape, ended the process for everyone. The sampling information of a batch does not know its requests, and a request
  without custom_params is nowhere to be found from its row.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/layers/sampler.py :: apply_custom_logit_processor
Touches: sglang/srt/managers/scheduler.py :: Scheduler.run_batch
Touches: sglang/srt/sampling/sampling_batch_info.py :: SamplingBatchInfo
Applies-To: ==0.5.23
Remove-When: upstream answers a request whose logit processor raises with an error
Last-Update: 2026-11-30
"""

from patches.transforms import AddField, Insert, Replace, call

_FAILURES = "sglang.srt.sampling.processor_failures"

EDITS = (
    Replace(
        "sglang/srt/layers/sampler.py",
        "apply_custom_logit_processor",
        call("entry.processor"),
        "run_processor(\n"
        "    entry, selected, custom_params, sampling_batch_info, lambda: logits.index_select(0, indices)\n"
        ")",
        module=_FAILURES,
        name="run_processor",
    ),
    Insert(
        "sglang/srt/managers/scheduler.py",
        "Scheduler.run_batch",
        "remember_requests(batch)",
        module=_FAILURES,
        name="remember_requests",
    ),
    AddField("sglang/srt/sampling/sampling_batch_info.py", "SamplingBatchInfo", "requests: Optional[Any] = None"),
)
