"""Description: Let a custom logit processor see the last token with overlap scheduling
  A processor may read its request's output. With overlap scheduling a step of plain decoding was sampled before the
  host had the token of the step before, so the processor decided one token late. Grammars have the same need, and for
  them sampling already waits until the last result is processed.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/srt/managers/tp_worker.py :: TpModelWorker.forward_batch_generation
Applies-To: ==0.5.23
Remove-When: upstream delays sampling for custom logit processors
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, expression

EDITS = (
    Replace(
        "sglang/srt/managers/tp_worker.py",
        "TpModelWorker.forward_batch_generation",
        expression("forward_batch.sampling_info.grammars is not None"),
        "{match} or forward_batch.sampling_info.has_custom_logit_processor",
    ),
)
