"""Reads what a DFLASH draft checkpoint says about itself, without its weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from sglang.srt.speculative.dflash_pair_fit import DraftFacts

FLAG = "--speculative-draft-model-path"
_EXAMPLE = "a local folder, or a hub id such as z-lab/Qwen3-8B-DFlash-b16"
_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
# Load formats whose weights are files of the checkpoint folder; the others make them up or fetch them elsewhere.
_FORMATS_WITH_FILES = frozenset({"auto", "safetensors", "pt", "npcache", "fastsafetensors", "bitsandbytes", "mistral"})


def check_draft_path(path: str | None) -> None:
    """Refuse a draft path that is missing or is a local path without a model. Raises LaunchError."""
    if not path:
        raise LaunchError(f"{FLAG} is not given, and --speculative-algorithm DFLASH needs a draft. Give {_EXAMPLE}.")
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise LaunchError(
                f"{FLAG} {path}: the folder has no config.json (it has: {_contents(folder)}). "
                "Give the folder that holds the draft's config.json and weights."
            )
    elif not folder.exists() and _is_meant_as_local(path):
        raise LaunchError(f"{FLAG} {path}: there is no such folder. Give {_EXAMPLE}.")


def check_draft_weights(path: str, load_format: str) -> None:
    """Refuse a local draft folder that holds no weight file. Raises LaunchError."""
    folder = Path(path).expanduser()
    if load_format not in _FORMATS_WITH_FILES or not folder.is_dir():
        return
    if not any(file.suffix in _WEIGHT_SUFFIXES and file.is_file() for file in folder.iterdir()):
        raise LaunchError(
            f"{FLAG} {path}: the folder has no weights (*.safetensors or *.bin; it has: {_contents(folder)}). "
            "Download the whole checkpoint; with git, run `git lfs pull` in it."
        )


def draft_config_arguments(cfg: Any) -> dict[str, Any]:
    """What every reader of the draft's config passes to ``get_config`` beside path and trust, so that all agree.

    ``cfg`` is a view of the server arguments.
    """
    return {
        # Upstream reads a draft at "main" where it reads a target at the hub's default branch.
        "revision": cfg.speculative_draft_model_revision or "main",
        "model_override_args": json.loads(cfg.json_model_override_args),
    }


def read_draft_config(cfg: Any) -> PretrainedConfig:
    """The draft's config, from disk, cache or hub, read as the draft process will read it.

    ``cfg`` is a view of the server arguments. Raises LaunchError if there is no readable config.
    """
    from sglang.srt.utils.hf_transformers_utils import get_config

    path = cfg.speculative_draft_model_path
    override_file = (cfg.decrypted_draft_config_file or "").strip()
    try:
        return get_config(
            path,
            trust_remote_code=cfg.trust_remote_code,
            model_config_parser=cfg.model_config_parser,
            **draft_config_arguments(cfg),
            **({"_configuration_file": override_file} if override_file else {}),
        )
    except Exception as error:
        raise LaunchError(_unreadable(path, cfg.speculative_draft_model_revision, error)) from error


def check_draft_class(path: str, architectures: list[str]) -> type:
    """The model class of a DFLASH draft with these ``architectures``. Raises LaunchError if it is none."""
    from sglang.srt.model_loader.model_class_lookup import model_class, registered_classes
    from sglang.srt.models.dflash import DFlashDraftModel

    for architecture in architectures:
        found = model_class(architecture)
        if found is not None and issubclass(found, DFlashDraftModel):
            return found
    accepted = sorted(
        name
        for name, candidate in registered_classes().items()
        if isinstance(candidate, type) and issubclass(candidate, DFlashDraftModel)
    )
    raise LaunchError(
        f"{FLAG} {path}: not a DFLASH draft. Its config.json has architectures {architectures or 'missing'}; accepted "
        f"are {', '.join(accepted)}. Give the draft that was trained for the target, not a language model."
    )


def draft_facts(cfg: Any, config: PretrainedConfig) -> DraftFacts:
    """What the rules of ``dflash_pair_fit`` need to know. Raises LaunchError if a field has an impossible value."""
    from sglang.srt.speculative.dflash_pair_fit import DraftFacts
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_context_length, get_hf_text_config

    path = cfg.speculative_draft_model_path
    text_config = get_hf_text_config(config)
    try:
        parsed = parse_dflash_draft_config(draft_hf_config=config)
        num_layers = parsed.require_num_layers()
    except (TypeError, ValueError) as error:
        raise LaunchError(f"{FLAG} {path}: {error} Correct the draft's config.json.") from error
    layer_ids = parsed.target_layer_ids
    return DraftFacts(
        path=path,
        hidden_size=int(text_config.hidden_size),
        vocab_size=_stated_vocab_size(cfg, text_config),
        own_head_vocab_size=_optional_int(getattr(config, "draft_vocab_size", None)),
        has_token_tables=bool(parsed.selector_rank) or parsed.is_domino,
        num_layers=num_layers,
        target_layer_ids=None if layer_ids is None else tuple(layer_ids),
        num_target_layers=parsed.num_target_layers,
        block_size=parsed.block_size,
        mask_token=parsed.mask_token,
        mask_token_id=parsed.mask_token_id,
        max_positions=int(get_context_length(text_config)),
    )


def _stated_vocab_size(cfg: Any, text_config: PretrainedConfig) -> int | None:
    """The draft's vocabulary size if its checkpoint states one: config classes fill in their own model's otherwise."""
    revision = draft_config_arguments(cfg)["revision"]
    try:
        stated, _ = text_config.get_config_dict(cfg.speculative_draft_model_path, revision=revision)
    except OSError:  # the config was not read from a config.json
        return None
    nested = stated.get("text_config") or {}
    return _optional_int(text_config.vocab_size) if "vocab_size" in stated or "vocab_size" in nested else None


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _is_meant_as_local(path: str) -> bool:
    """A hub id has at most one slash and does not start with a dot, a slash or a tilde; a URL names its scheme."""
    return "://" not in path and (path[0] in "./~" or path.count("/") > 1 or os.sep != "/" and os.sep in path)


def _contents(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"


def _unreadable(path: str, revision: str | None, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if Path(path).expanduser().exists():
        return f"{FLAG} {path}: its config cannot be read: {reason}"
    at = f" at revision {revision!r}" if revision else ""
    return (
        f"{FLAG} {path}: there is no such local folder, and the hub gave no config for this id{at} "
        f"({type(error).__name__}: {reason}). Check the spelling, --speculative-draft-model-revision, the network and "
        "HF_TOKEN, or download the draft and give its folder."
    )
