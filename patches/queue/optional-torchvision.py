"""Description: Start text models without torchvision
  Two modules on every start-up path import torchvision at their top and use it for images only. A CPU environment for
  text would need a second large package, matched to torch release by release.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/srt/configs/deepseek_ocr.py
Touches: sglang/srt/multimodal/internvl_utils.py
Applies-To: ==0.5.23
Remove-When: both modules import torchvision where they use it
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, imports

_OPTIONAL = "from sglang.srt.multimodal.optional_torchvision import"
_OCR = "sglang/srt/configs/deepseek_ocr.py"
_INTERNVL = "sglang/srt/multimodal/internvl_utils.py"

EDITS = (
    Replace(_OCR, None, imports("torchvision", "InterpolationMode"), f"{_OPTIONAL} InterpolationMode"),
    Replace(_OCR, None, imports("torchvision", "TF"), f"{_OPTIONAL} functional as TF"),
    Replace(_INTERNVL, None, imports("torchvision", "T"), f"{_OPTIONAL} transforms as T"),
    Replace(_INTERNVL, None, imports("torchvision", "InterpolationMode"), f"{_OPTIONAL} InterpolationMode"),
)
