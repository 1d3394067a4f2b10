"""Description: One CUDA toolkit for all that a server compiles, and FlashInfer only where it can get its kernels
  The default attention and sampling backends were FlashInfer wherever it is installed, also without a compiler that
  knows the GPU; the first request then failed to compile. Compilers took the first toolkit of their search order, also
  where it is too old or incomplete and a good one lies beside it. The list of target architectures was overwritten with
  12.0a on SM120, also where nvcc has the family target 12.0f, and whatever the user had set was lost. Where FlashInfer
  is asked for by name, nothing said before the first use that it cannot compile. No extension point runs before the
  backends are chosen, or sets the environment of a launch.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/utils/common.py :: set_cuda_arch
Touches: sglang/srt/arg_groups/model_override_base.py :: get_default_attn_backend
Touches: sglang/srt/arg_groups/overrides.py :: _sampling_backend_default
Touches: sglang/srt/entrypoints/engine.py :: _set_envs_and_config
Applies-To: ==0.5.23
Remove-When: upstream asks for a usable compiler or prebuilt kernels, and keeps FLASHINFER_CUDA_ARCH_LIST
Last-Update: 2026-11-30
"""

from patches.transforms import Insert, Replace, expression

_TOOLCHAIN = "sglang.srt.utils.flashinfer_toolchain"
_INSTALLED = expression("get_platform().has_flashinfer")


def _if_usable(file: str, function: str, use: str) -> Replace:
    return Replace(
        file,
        function,
        _INSTALLED,
        f"choose_flashinfer({{match}}, {use!r})",
        module=_TOOLCHAIN,
        name="choose_flashinfer",
    )


EDITS = (
    Replace(
        "sglang/srt/utils/common.py",
        "set_cuda_arch",
        expression("f\"{arch}{'a' if capability[0] >= 9 else ''}\""),
        "runtime_arch_list(capability, {match})",
        module=_TOOLCHAIN,
        name="runtime_arch_list",
    ),
    _if_usable("sglang/srt/arg_groups/model_override_base.py", "get_default_attn_backend", "attention"),
    _if_usable("sglang/srt/arg_groups/overrides.py", "_sampling_backend_default", "sampling"),
    Insert(
        "sglang/srt/entrypoints/engine.py",
        "_set_envs_and_config",
        "prepare_toolkit(server_args)",
        module=_TOOLCHAIN,
        name="prepare_toolkit",
    ),
)
