"""DFLASH over pipeline stages at launch: what is refused, and the switch of upstream's relay between stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.arg_groups.overrides import model_config_of, resolving_view
from sglang.srt.environ import envs
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

# Families whose layers capture their inputs on any stage.
ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)


def serves_stages(server_args: ServerArgs) -> bool:
    """True where DFLASH can serve over the stages of `--pp-size`, one included; else LaunchError.

    Switches upstream's relay of drafts between stages on, for this process and those that it starts.
    """
    cfg = resolving_view(server_args)
    if cfg.pp_size == 1:
        return True
    architectures = list(getattr(model_config_of(server_args).hf_config, "architectures", None) or [])
    if not any(name in ARCHITECTURES for name in architectures):
        raise LaunchError(
            f"--pp-size {cfg.pp_size} with DFLASH: target {architectures}, "
            f"and stages serve {', '.join(ARCHITECTURES)}. Give --pp-size 1, or leave --speculative-algorithm out."
        )
    for flag, (asked, reason) in _combinations(cfg).items():
        if asked:
            raise LaunchError(
                f"{flag} with DFLASH and --pp-size {cfg.pp_size}: {reason}. Leave it out, or give --pp-size 1."
            )
    envs.SGLANG_ENABLE_PP_SPEC.set(True)
    return True


def _combinations(cfg: Any) -> dict[str, tuple[bool, str]]:
    return {
        "--model-impl": (
            cfg.model_impl not in ("auto", "sglang"),
            "only this engine's own models capture states on any stage",
        ),
        "--disaggregation-mode": (cfg.disaggregation_mode != "null", "drafts are not sent to another server"),
        "--language-only": (cfg.language_only, "images encoded by another server have not been tried over stages"),
        "--enable-dp-attention": (bool(cfg.enable_dp_attention), "every stage must see the same batch"),
        "--speculative-adaptive": (
            bool(cfg.speculative_adaptive),
            "the stages have widths of their own (--speculative-dflash-tree-budget auto)",
        ),
        "--pp-async-batch-depth": (cfg.pp_async_batch_depth > 0, "a round needs the outputs of the one before"),
        "--enable-lora": (bool(cfg.enable_lora), "it has not been tried over stages"),
        "--enable-hierarchical-cache": (cfg.enable_hierarchical_cache, "it has not been tried over stages"),
        "--enable-return-hidden-states": (cfg.enable_return_hidden_states, "the draft takes the states of its layers"),
        "--enable-torch-compile": (cfg.enable_torch_compile, "compiled layers have not been tried over stages"),
        "--enable-mixed-chunk": (cfg.enable_mixed_chunk, "it has not been tried over stages"),
        "--cuda-graph-backend-prefill": (
            cfg.cuda_graph_backend_prefill not in (None, "disabled"),
            "graphs of prompts do not carry the states that the draft reads",
        ),
        "--startup-weight-load-mode overlap": (
            cfg.startup_weight_load_mode == "overlap",
            "the draft's embedding is copied before the server is up",
        ),
    }


def refuse_chain_of_stages(cfg: Any, reason: str) -> None:
    """Raise LaunchError, with the `reason` for which a pair is verified as a chain, if it is asked for over stages."""
    if cfg.pp_size > 1:
        raise LaunchError(
            f"--pp-size {cfg.pp_size} with DFLASH: {reason}, and stages serve what trees serve. Give --pp-size 1."
        )
