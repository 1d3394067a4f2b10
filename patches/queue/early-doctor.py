"""Description: Let the CUDA doctor answer before torch is imported
  `python -m sglang.cuda_doctor` imports the package first, and that imports torch, transformers and FlashInfer: seconds
  on a good machine, and an end with a traceback on one whose torch does not load. Nothing of ours runs earlier than
  the package's own first statements.
Origin: vendor
Forwarded: not-needed, upstream has no doctor
Touches: sglang/__init__.py
Applies-To: ==0.5.23
Remove-When: importing sglang imports nothing heavy
Last-Update: 2026-11-30
"""

from patches.transforms import Insert, before, call

EDITS = (
    Insert(
        "sglang/__init__.py",
        None,
        "run_doctor_if_asked()",
        module="sglang.cuda_doctor.early",
        name="run_doctor_if_asked",
        where=before(call("_redirect_third_party_caches")),
    ),
)
