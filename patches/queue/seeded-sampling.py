"""Description: Sample with a seed on a CPU, with min-p, and alike in every batch; and quickly at every node of a tree
  Seeded sampling on a CPU imports a package of compiled kernels that the CPU platform goes without, and compiles its
  torch part with a C++ compiler. The flag that turns seeds on asks for an attention backend and for kernels of an
  accelerator. A request with min-p fails an assertion under that flag, which ends the server. What a seed draws
  depends on the other requests: where one of them has a filter, or is greedy, noise goes by rank and not by token.
  Without FlashInfer's kernels one filter, or one greedy request, sorts the vocabulary for all rows of a batch, and the
  verify of a tree has a row per node; on a CPU a draw takes a random number for every token of each row.
Origin: vendor
Forwarded: no, not reported yet
Touches: sglang/kernels/ops/sampling/murmur_hash.py :: murmur_hash32
Touches: sglang/srt/layers/sampler.py :: multinomial_with_seed
Touches: sglang/srt/layers/sampler.py :: top_k_top_p_min_p_sampling_from_probs_torch
Touches: sglang/srt/layers/sampler.py :: sampling_from_probs_torch
Touches: sglang/srt/batch_invariant_ops/batch_invariant_ops.py :: enable_batch_invariant_mode
Touches: sglang/srt/arg_groups/choices.py :: DETERMINISTIC_ATTENTION_BACKEND_CHOICES
Touches: sglang/srt/arg_groups/choices.py :: RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND
Applies-To: ==0.5.23
Remove-When: upstream samples with a seed on a CPU without sgl_kernel, with min-p, and alike in every batch
Last-Update: 2026-11-30
"""

from patches.transforms import AppendItem, Decorate

_MODULE = "sglang.srt.layers.seeded_sampling"
_CHOICES = "sglang/srt/arg_groups/choices.py"

EDITS = (
    Decorate(
        "sglang/kernels/ops/sampling/murmur_hash.py", "murmur_hash32", "hashes_without_sgl_kernel", module=_MODULE
    ),
    Decorate("sglang/srt/layers/sampler.py", "multinomial_with_seed", "eager_on_cpu", module=_MODULE),
    Decorate(
        "sglang/srt/layers/sampler.py",
        "top_k_top_p_min_p_sampling_from_probs_torch",
        "draws_by_token",
        module=_MODULE,
    ),
    Decorate("sglang/srt/layers/sampler.py", "sampling_from_probs_torch", "in_two_steps_on_cpu", module=_MODULE),
    Decorate(
        "sglang/srt/batch_invariant_ops/batch_invariant_ops.py",
        "enable_batch_invariant_mode",
        "on_accelerators",
        module=_MODULE,
    ),
    AppendItem(_CHOICES, "DETERMINISTIC_ATTENTION_BACKEND_CHOICES", '"cpu_reference"'),
    AppendItem(_CHOICES, "RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND", '"cpu_reference"'),
)
