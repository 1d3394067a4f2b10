"""Description: Hand input embeddings to the model in the model's own type
  A DFLASH draft gets its input as embeddings of the target. They are cast to bfloat16 whatever the draft's weights are,
  so that every float16 or float32 pair ends the server at its first decode round.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/srt/model_executor/model_runner.py :: ModelRunner._extend_forward_kwargs
Applies-To: ==0.5.23
Remove-When: upstream casts input embeddings to the type of the model
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, call

EDITS = (
    Replace(
        "sglang/srt/model_executor/model_runner.py",
        "ModelRunner._extend_forward_kwargs",
        call("input_embeds.bfloat16"),
        "forward_batch.input_embeds.to(self.dtype)",
    ),
)
