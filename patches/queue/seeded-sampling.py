"""Description: Sample with a seed on a CPU, and with a seed and min-p
  Seeded sampling on a CPU imports a package of compiled kernels that the CPU platform goes without, and compiles its
  torch part with a C++ compiler. A request with min-p fails an assertion under deterministic inference, which ends the
  server.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/kernels/ops/sampling/murmur_hash.py :: murmur_hash32
Touches: sglang/srt/layers/sampler.py :: multinomial_with_seed
Touches: sglang/srt/layers/sampler.py :: top_k_top_p_min_p_sampling_from_probs_torch
Applies-To: ==0.5.23
Remove-When: upstream samples with a seed on a CPU without sgl_kernel, and with min-p
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate

_MODULE = "sglang.srt.layers.seeded_sampling"

EDITS = (
    Decorate(
        "sglang/kernels/ops/sampling/murmur_hash.py", "murmur_hash32", "hashes_without_sgl_kernel", module=_MODULE
    ),
    Decorate("sglang/srt/layers/sampler.py", "multinomial_with_seed", "eager_on_cpu", module=_MODULE),
    Decorate(
        "sglang/srt/layers/sampler.py",
        "top_k_top_p_min_p_sampling_from_probs_torch",
        "min_p_before_seeded_draw",
        module=_MODULE,
    ),
)
