"""Start-up checks for DFLASH, in the launching process and before any weight is loaded.

Each check ends the launch with one line: the flag, what was found, what to do. Without them the same mistakes end a
model process, minutes later and with its stack trace. Nothing that upstream can serve is refused, except what would
serve with next to no accepted drafts (another vocabulary) or not as asked (a flag that would be dropped).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.arg_groups.choices import DRAFT_ATTENTION_BACKEND_CHOICES
from sglang.srt.arg_groups.overrides import attention_backends_of, model_config_of, resolved_view, resolving_view
from sglang.srt.environ import envs
from sglang.srt.platforms import current_platform
from sglang.srt.speculative.dflash_draft_checkpoint import (
    check_draft_class,
    check_draft_path,
    check_draft_weights,
    draft_facts,
    read_draft_config,
)
from sglang.srt.speculative.dflash_pair_fit import (
    CAPTURE_HOOK,
    MODULES_WITHOUT_LAST_LAYER,
    DraftFacts,
    TargetFacts,
    check_block_size,
    check_context_length,
    check_mask_token,
    check_pair,
)
from sglang.srt.speculative.draft_tree.launch import refuse_trees_without_dflash
from sglang.srt.speculative.verify_backends import check_draft_backend, check_verify_backend
from sglang.srt.utils.launch_error import LaunchError
from sglang.utils import is_in_ci

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import ServerArgs

# What a draft without a block size in its config is served with.
_DEFAULT_BLOCK_SIZE = 16


def check_dflash_launch(server_args: ServerArgs) -> None:
    """Raise LaunchError if DFLASH was asked for and cannot serve with ``server_args``; else do nothing.

    Reads the configs of target and draft, by upstream's own loaders, and imports the two model classes. Attention
    backends must have been resolved, or be what the user gave.
    """
    cfg = resolving_view(server_args)
    refuse_trees_without_dflash(cfg)
    if not _asks_for_dflash(cfg):
        return
    if cfg.speculative_adaptive:
        raise LaunchError(
            "--speculative-adaptive: DFLASH verifies a fixed block and has no adaptive mode here. Leave the flag out; "
            "--speculative-num-draft-tokens sets the block size."
        )
    check_attention_backends(server_args)
    check_draft_path(cfg.speculative_draft_model_path)
    config = read_draft_config(cfg)
    check_draft_class(cfg.speculative_draft_model_path, list(getattr(config, "architectures", None) or []))
    check_draft_weights(cfg.speculative_draft_model_path, cfg.speculative_draft_load_format or cfg.load_format)

    draft = draft_facts(cfg, config)
    target = target_facts(model_config_of(server_args))
    check_block_size(*_block_size(cfg, draft))
    check_pair(draft, target)
    check_mask_token(draft.mask_token, _mask_token_id(cfg, draft), target)
    may_exceed = envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get() or is_in_ci()
    check_context_length(draft, target, may_exceed=may_exceed)


def check_attention_backends(server_args: ServerArgs) -> None:
    """Raise LaunchError if DFLASH was asked for on an attention backend that cannot serve it."""
    cfg = resolving_view(server_args)
    if not _asks_for_dflash(cfg):
        return
    prefill, decode = attention_backends_of(resolved_view(server_args))
    check_verify_backend(prefill, decode, cfg.speculative_attention_mode, current_platform)
    check_draft_backend(cfg.speculative_draft_attention_backend, DRAFT_ATTENTION_BACKEND_CHOICES, current_platform)


def target_facts(config: ModelConfig) -> TargetFacts:
    """What the rules of ``dflash_pair_fit`` need to know about a target. Imports its model class."""
    from sglang.srt.model_loader.model_class_lookup import model_class

    architectures = list(getattr(config.hf_config, "architectures", None) or [])
    target_class = None
    if config.model_impl in ("auto", "sglang"):
        target_class = next(filter(None, map(model_class, architectures)), None)
    if target_class is None:
        from sglang.srt.model_loader.utils import get_model_architecture

        target_class, _ = get_model_architecture(config)
    text_config = config.hf_text_config
    return TargetFacts(
        path=config.model_path,
        class_name=target_class.__name__,
        has_capture_hook=_has_capture_hook(target_class),
        captures_last_layer=_captures_last_layer(target_class),
        hidden_sizes=frozenset({int(config.hidden_size), int(config.spec_hidden_size)}),
        vocab_size=int(config.vocab_size),
        num_layers=int(text_config.num_hidden_layers) * int(getattr(text_config, "num_loops", 1)),
        context_length=int(config.context_len),
    )


def _asks_for_dflash(cfg: Any) -> bool:
    return (cfg.speculative_algorithm or "").upper() == "DFLASH"


def _has_capture_hook(target_class: type) -> bool:
    """Whether instances have the hook. A class that forwards unknown attributes can only be asked once it is built."""
    forwards_attributes = "__getattr__" in vars(target_class)
    return forwards_attributes or hasattr(target_class, CAPTURE_HOOK)


def _captures_last_layer(target_class: type) -> bool:
    hook = getattr(target_class, CAPTURE_HOOK, None)
    return hook is None or hook.__module__.rpartition(".")[2] not in MODULES_WITHOUT_LAST_LAYER


def _block_size(cfg: Any, draft: DraftFacts) -> tuple[int, str]:
    """The block size that will be used, and where it comes from, for a message."""
    for field in ("speculative_dflash_block_size", "speculative_num_draft_tokens"):
        value = getattr(cfg, field)
        if value is not None:
            return int(value), f"--{field.replace('_', '-')} {value}"
    if draft.block_size is not None:
        return draft.block_size, f"--speculative-draft-model-path {draft.path}"
    return _DEFAULT_BLOCK_SIZE, "--speculative-num-draft-tokens"


def _mask_token_id(cfg: Any, draft: DraftFacts) -> int:
    """The id of the mask token; without one in the config, the id that the target's tokenizer has or would give it."""
    if draft.mask_token_id is not None:
        return draft.mask_token_id
    if cfg.skip_tokenizer_init:
        raise LaunchError(
            f"--skip-tokenizer-init: the draft {draft.path} names its mask token {draft.mask_token!r} without an id, "
            "so the tokenizer is needed to find it. Leave the flag out, or set dflash_config.mask_token_id in the "
            "draft's config.json."
        )
    from sglang.srt.utils.hf_transformers_utils import get_tokenizer

    tokenizer = get_tokenizer(
        cfg.tokenizer_path or cfg.model_path,
        tokenizer_mode=cfg.tokenizer_mode,
        trust_remote_code=cfg.trust_remote_code,
        tokenizer_revision=cfg.revision,
    )
    known = tokenizer.get_vocab().get(draft.mask_token)
    if known is not None:
        return int(known)
    if tokenizer.mask_token == draft.mask_token:
        return int(tokenizer.mask_token_id)
    # The draft process adds the token; the tokenizer object here is its own copy.
    tokenizer.add_special_tokens({"mask_token": draft.mask_token})
    return int(tokenizer.mask_token_id)
