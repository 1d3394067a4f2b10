"""Draft trees at launch: which arguments are refused, what falls back to the chain, and what follows from the rest."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang.kernels.draft_tree.tree_build import MAX_BUDGET, MAX_TOPK
from sglang.srt.arg_groups import overrides
from sglang.srt.arg_groups.overrides import declare_resolution, model_config_of, resolving_view
from sglang.srt.platforms import current_platform
from sglang.srt.speculative.draft_tree.accept_thresholds import LOSSLESS, THRESHOLDS
from sglang.srt.speculative.draft_tree.config import draft_tree_config
from sglang.srt.speculative.draft_tree.pipeline_launch import refuse_chain_of_stages
from sglang.srt.speculative.draft_tree.verify_kernel import verify_kernel
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

logger = logging.getLogger(__name__)

BUDGET_FLAG = "--speculative-dflash-tree-budget"
TOPK_FLAG = "--speculative-dflash-tree-topk"
WIDTHS_FLAG = "--speculative-dflash-widths"

# The budget for which each round chooses its width, and what it chooses from. 1 is plain decoding.
AUTO = "auto"
DEFAULT_WIDTHS = (1, 4, 8, 16, 32, 64)

# Backends whose verify reads a mask of free branching, by attention architecture.
TREE_BACKENDS = ("triton", "flashinfer")
TREE_BACKENDS_MLA = ("triton",)
DEFAULT_TREE_BACKEND = "triton"


def after_tree_backend_choice(handle: Callable) -> Callable:
    """Wrap `handle_attention_backend_compatibility`: trees name their backend before upstream chooses one."""

    @functools.wraps(handle)
    def choose_first(server_args: ServerArgs):
        choose_tree_backend(server_args)
        return handle(server_args)

    return choose_first


def choose_tree_backend(server_args: ServerArgs) -> None:
    """Name an attention backend that verifies trees where the user named none."""
    cfg = resolving_view(server_args)
    if not _asks_for_trees(cfg) or current_platform.is_out_of_tree():
        return
    if any((cfg.attention_backend, cfg.prefill_attention_backend, cfg.decode_attention_backend)):
        return
    if chain_reason(cfg, model_config_of(server_args)) is not None:
        return
    declare_resolution(server_args, "draft_tree", attention_backend=DEFAULT_TREE_BACKEND)
    logger.info("%s: --attention-backend %s, which verifies trees", BUDGET_FLAG, DEFAULT_TREE_BACKEND)


def resolve_draft_tree(server_args: ServerArgs) -> None:
    """Check the tree arguments of a DFLASH launch and settle the widths of draft and verify.

    Afterwards `speculative_num_draft_tokens` is the verify width and `speculative_dflash_block_size` the draft's; for
    a chain both are the block size. Raises LaunchError for what cannot be served with trees. What a user rather wants
    as a chain than not at all falls back to it, with one warning.
    """
    cfg = resolving_view(server_args)
    verify_kernel()  # so that a wrong name is found now, and not by the first verify
    block_size = int(cfg.speculative_num_draft_tokens)
    declare_resolution(server_args, "draft_tree", speculative_dflash_block_size=block_size)
    asked = cfg.speculative_dflash_tree_budget
    widths = _widths(asked, cfg.speculative_dflash_widths)
    budget = widths[-1] - 1 if widths else check_range(BUDGET_FLAG, asked, 0, MAX_BUDGET)
    check_range(TOPK_FLAG, cfg.speculative_dflash_tree_topk, 1, MAX_TOPK)
    if cfg.pp_size > 1 and not budget:
        # Stages verify trees alone: a chain is the tree of one candidate per depth.
        budget = check_range("--speculative-num-draft-tokens", block_size - 1, 1, MAX_BUDGET)
        declare_resolution(server_args, "draft_tree", speculative_dflash_tree_topk=1)
        declare_resolution(server_args, "draft_tree", speculative_dflash_tree_budget=budget)
    if not budget:
        return
    reason = chain_reason(cfg, model_config_of(server_args))
    if reason is not None:
        refuse_chain_of_stages(cfg, reason)
        logger.warning("%s %s: %s; drafts are verified as a chain instead.", BUDGET_FLAG, asked, reason)
        declare_resolution(server_args, "draft_tree", speculative_dflash_tree_budget=0, speculative_dflash_widths=None)
        return
    _refuse_combinations(cfg)
    _check_backend(server_args, cfg)
    topk = min(int(cfg.speculative_dflash_tree_topk), int(model_config_of(server_args).vocab_size))
    declare_resolution(
        server_args,
        "draft_tree",
        speculative_dflash_tree_budget=budget,
        speculative_dflash_tree_topk=topk,
        speculative_dflash_widths=widths,
        speculative_num_draft_tokens=1 + budget,
    )


def refuse_trees_without_dflash(cfg: Any) -> None:
    """Raise LaunchError for a tree budget that nobody would read. `cfg` is upstream's view of the arguments."""
    if cfg.speculative_dflash_tree_budget and (cfg.speculative_algorithm or "").upper() != "DFLASH":
        found = f"--speculative-algorithm {cfg.speculative_algorithm}" if cfg.speculative_algorithm else "no algorithm"
        raise LaunchError(
            f"{BUDGET_FLAG} {cfg.speculative_dflash_tree_budget}: draft trees belong to DFLASH, and {found} was given. "
            "Add --speculative-algorithm DFLASH, or leave the flag out."
        )


def _widths(budget: int | str, asked: list[int] | None) -> list[int] | None:
    """What rounds choose from, ascending; None where the budget is fixed."""
    if budget != AUTO:
        if asked:
            raise LaunchError(
                f"{WIDTHS_FLAG} with {BUDGET_FLAG} {budget}: a fixed budget has one width. "
                f"Give {BUDGET_FLAG} {AUTO}, or leave {WIDTHS_FLAG} out."
            )
        return None
    widths = sorted({check_range(WIDTHS_FLAG, width, 1, 1 + MAX_BUDGET) for width in asked or DEFAULT_WIDTHS})
    if widths == [1]:
        raise LaunchError(f"{WIDTHS_FLAG} 1: that is plain decoding alone. Add a width above 1, or leave out DFLASH.")
    return widths


def check_range(flag: str, value: int | str, least: int, most: int) -> int:
    """`value` as an int; LaunchError outside of `least` to `most`."""
    if not least <= int(value) <= most:
        raise LaunchError(f"{flag} {value}: it must be between {least} and {most}.")
    return int(value)


def chain_reason(cfg: Any, target: ModelConfig) -> str | None:
    """Why this pair is verified as a chain although trees were asked for; None if it is not."""
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import is_deepseek_dsa, is_deepseek_v4

    if mambaish_config(target) is not None:
        return "the target has recurrent layers, whose state follows one path"
    if _has_sliding_window(target):
        return "the target has sliding-window layers, whose windows are counted in rows and not in depths"
    if getattr(target, "attention_chunk_size", None):
        return "the target attends in chunks, whose borders are counted in rows and not in depths"
    if is_deepseek_dsa(target.hf_config) or is_deepseek_v4(target.hf_config):
        return "the target selects what it attends to, which no tree mask reaches"
    if target.is_encoder_decoder:
        return "the target has cross attention"
    if cfg.speculative_draft_window_size is not None:
        return "--speculative-draft-window-size keeps a draft cache of its own"
    return _draft_reason(cfg)


def _draft_reason(cfg: Any) -> str | None:
    from sglang.srt.speculative.dflash_draft_checkpoint import read_draft_config
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

    if cfg.speculative_draft_model_path is None:
        return None  # refused elsewhere
    config = read_draft_config(cfg)
    if "LiLiCorrDraftModel" in (getattr(config, "architectures", None) or []):
        return "a LiLiCorr draft corrects one path"
    if parse_dflash_draft_config(draft_hf_config=config).is_domino:
        return "a Domino draft unrolls one path"
    return None


def _has_sliding_window(target: ModelConfig) -> bool:
    if getattr(target, "is_hybrid_swa", False):
        return True
    text_config = target.hf_text_config
    if not getattr(text_config, "use_sliding_window", True):
        return False
    return bool(target.sliding_window_size)


def _asks_for_trees(cfg: Any) -> bool:
    asks = bool(cfg.speculative_dflash_tree_budget) or cfg.pp_size > 1
    return asks and (cfg.speculative_algorithm or "").upper() == "DFLASH"


def _refuse_combinations(cfg: Any) -> None:
    refused = {
        "--enable-dp-attention": (cfg.enable_dp_attention, "idle ranks would have to verify trees of their own"),
        "--enable-unified-memory": (cfg.enable_unified_memory, "its KV moves by pages, and an accepted path by slots"),
        "--enable-two-batch-overlap": (cfg.enable_two_batch_overlap, "a mask cannot be split between batches"),
        "--enable-hisparse": (cfg.enable_hisparse, "it verifies chains only"),
        "--enable-return-routed-experts": (
            cfg.enable_return_routed_experts,
            "they are kept by KV slot, and an accepted path moves to other slots",
        ),
        "--enable-return-indexer-topk": (
            cfg.enable_return_indexer_topk,
            "they are kept by KV slot, and an accepted path moves to other slots",
        ),
        "--dcp-size": (cfg.dcp_size > 1, "attention over split contexts takes no mask"),
        "--speculative-use-block-verification": (
            cfg.speculative_use_block_verification,
            "a tree is accepted by the target's own draws",
        ),
    }
    for name in THRESHOLDS:
        flag = f"--{name.replace('_', '-')}"
        refused[flag] = (getattr(cfg, name) != LOSSLESS, "a tree is accepted exactly")
    for flag, (asked, reason) in refused.items():
        if asked:
            raise LaunchError(f"{flag} with {BUDGET_FLAG}: {reason}. Leave out one of the two.")


def refuses_sampling_masks(validate: Callable) -> Callable:
    """Wrap `validate_spec_sampling_mask_request`: upstream records the mask of a chain's draws, and not of a tree's."""

    @functools.wraps(validate)
    def check(req: Req, spec_algorithm: SpeculativeAlgorithm) -> str | None:
        if draft_tree_config() is not None:
            return f"return_sampling_mask is not supported with {BUDGET_FLAG}."
        return validate(req, spec_algorithm)

    return check


def _check_backend(server_args: ServerArgs, cfg: Any) -> None:
    prefill, decode = overrides.attention_backends_of(overrides.resolved_view(server_args))
    backend = decode if cfg.speculative_attention_mode == "decode" else prefill
    able = TREE_BACKENDS_MLA if overrides.use_mla_backend(server_args) else TREE_BACKENDS
    if current_platform.is_out_of_tree():
        able = tuple(getattr(current_platform, "tree_attention_backends", ()))
    if backend in able:
        return
    asked, otherwise = f"{BUDGET_FLAG} {cfg.speculative_dflash_tree_budget}", f"{BUDGET_FLAG} 0 for a chain"
    if cfg.pp_size > 1:
        asked, otherwise = f"--pp-size {cfg.pp_size} with DFLASH, which verifies trees,", "--pp-size 1"
    instead = f"give --attention-backend {' or '.join(able)}" if able else "leave the flag out"
    raise LaunchError(
        f"{asked} with attention backend {backend}: it takes no tree mask for this target. Please {instead}, or "
        f"{otherwise}."
    )
