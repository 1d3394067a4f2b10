"""Whether a DFLASH draft was made for a target: rules over two small records of facts.

What the draft borrows decides the rules. It reads the target's embedding as its input and the target's output head as
its own, so hidden sizes must be equal; it reads the hidden states of chosen target layers, so these must exist; its
query positions hold the mask token, so the target's embedding needs a row for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sglang.srt.utils.launch_error import LaunchError

logger = logging.getLogger(__name__)

CAPTURE_HOOK = "set_dflash_layers_to_capture"

# Modules of sglang.srt.models whose hook captures what a layer receives and nothing behind the last layer: the output
# of the last layer is never captured, and the draft gets one hidden state too few with the first request.
MODULES_WITHOUT_LAST_LAYER = frozenset(
    {
        "deepseek_v2",
        "glm4_moe_lite",
        "glm5_next",
        "kimi_k25",
        "llama",
        "minicpmv",
        "nanbeige",
        "qwen3",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_vl",
    }
)

# A padded or extended vocabulary differs from the original by less than this fraction; another tokenizer or a reduced
# draft vocabulary differs by more.
SAME_VOCABULARY_TOLERANCE = 0.02


@dataclass(frozen=True)
class DraftFacts:
    """What a DFLASH draft says about itself."""

    path: str
    hidden_size: int
    vocab_size: int | None  # None: the draft has no vocabulary of its own
    own_head_vocab_size: int | None  # rows of a head that the draft was trained with, where it is not the target's
    has_token_tables: bool  # selector and Domino drafts index tables by target token id
    num_layers: int
    target_layer_ids: tuple[int, ...] | None  # 0-based, hidden state after the layer; None: chosen from layer counts
    num_target_layers: int | None  # layers of the target that the draft was trained on
    block_size: int | None
    mask_token: str
    mask_token_id: int | None
    max_positions: int


@dataclass(frozen=True)
class TargetFacts:
    """What DFLASH needs to know about a target."""

    path: str
    class_name: str
    has_capture_hook: bool
    captures_last_layer: bool
    hidden_sizes: frozenset[int]  # widths that its captured hidden states may have
    vocab_size: int
    num_layers: int  # decoder layers, unrolled where the model loops over them
    context_length: int


def check_pair(draft: DraftFacts, target: TargetFacts) -> None:
    """Raise LaunchError for the first thing that keeps ``draft`` from drafting for ``target``."""
    _check_hook(target)
    _check_hidden_size(draft, target)
    _check_vocabulary(draft, target)
    _check_captured_layers(draft, target)


def check_block_size(block_size: int, flag: str) -> None:
    """Refuse a block without a draft position: position 0 is the last emitted token. Raises LaunchError."""
    if block_size < 2:
        raise LaunchError(
            f"{flag}: block size {block_size} leaves no position for a draft token (the first one holds the last "
            "emitted token). Use 2 or more; a trained draft is best at the block size of its config."
        )


def check_mask_token(token: str, token_id: int, target: TargetFacts) -> None:
    """Refuse a mask token that the target's embedding has no row for. Raises LaunchError."""
    if not 0 <= token_id < target.vocab_size:
        raise LaunchError(
            f"--speculative-draft-model-path: the draft's mask token {token!r} has id {token_id}, but the embedding of "
            f"the target {target.path} ends at id {target.vocab_size - 1}. The draft belongs to another target: "
            "give the draft that was trained for this one, or set dflash_config.mask_token_id in its config.json."
        )


def check_context_length(draft: DraftFacts, target: TargetFacts, *, may_exceed: bool) -> None:
    """Compare the positions that the draft was trained for with those that requests can reach.

    Upstream ends the draft process when the target's context is longer, unless it is told to go on (``may_exceed``);
    then acceptance falls behind the draft's limit, while the output stays right. Raises LaunchError.
    """
    if target.context_length <= draft.max_positions:
        return
    found = (
        f"the target's context length {target.context_length} is beyond the {draft.max_positions} positions of the "
        f"draft {draft.path}"
    )
    if not may_exceed:
        raise LaunchError(
            f"--context-length: {found}. Give --context-length {draft.max_positions} or less, or set "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 to let the draft run beyond what it was trained for "
            "(fewer drafts are accepted there)."
        )
    logger.warning(
        "DFLASH: %s. Drafts behind that position are accepted less often; --context-length %d avoids this.",
        found,
        draft.max_positions,
    )


def _check_hook(target: TargetFacts) -> None:
    if not target.has_capture_hook:
        raise LaunchError(
            f"--speculative-algorithm DFLASH: the target's model class {target.class_name} has no {CAPTURE_HOOK}, so "
            "it cannot hand hidden states to a draft. Serve this model without --speculative-algorithm, or, if "
            "--model-impl chose the class, leave that flag out."
        )


def _check_hidden_size(draft: DraftFacts, target: TargetFacts) -> None:
    if draft.hidden_size not in target.hidden_sizes:
        sizes = " or ".join(str(size) for size in sorted(target.hidden_sizes))
        raise LaunchError(
            f"--speculative-draft-model-path {draft.path}: the draft has hidden size {draft.hidden_size}, the target "
            f"{target.path} has {sizes}; a draft shares the target's embedding and output head. Give the draft that "
            "was trained for this target."
        )


def _check_vocabulary(draft: DraftFacts, target: TargetFacts) -> None:
    own_head = draft.own_head_vocab_size
    if own_head is not None and own_head != target.vocab_size:
        raise LaunchError(
            f"--speculative-draft-model-path {draft.path}: the draft was trained with its own output head of "
            f"{own_head} tokens (draft_vocab_size), the target {target.path} has {target.vocab_size}. DFLASH drafts "
            "use the target's head, so nearly every draft token would be rejected. Give a draft with the full "
            "vocabulary."
        )
    if draft.vocab_size is None or draft.vocab_size == target.vocab_size:
        return
    found = f"the draft has a vocabulary of {draft.vocab_size} tokens, the target {target.path} of {target.vocab_size}"
    difference = abs(draft.vocab_size - target.vocab_size)
    other_vocabulary = difference > SAME_VOCABULARY_TOLERANCE * target.vocab_size
    if other_vocabulary or (draft.has_token_tables and draft.vocab_size < target.vocab_size):
        raise LaunchError(
            f"--speculative-draft-model-path {draft.path}: {found}. Give the draft that was trained for this target."
        )
    logger.warning("DFLASH: %s; taken as padding or added tokens of one vocabulary.", found)


def _check_captured_layers(draft: DraftFacts, target: TargetFacts) -> None:
    if draft.target_layer_ids is None:
        if draft.num_layers > 1 and target.num_layers < 4:
            raise LaunchError(
                f"--speculative-draft-model-path {draft.path}: its config names no target_layer_ids, and the target "
                f"{target.path} has {target.num_layers} layers, too few to choose from (4 are needed). Set "
                "dflash_config.target_layer_ids in the draft's config.json."
            )
    else:
        outside = [layer for layer in draft.target_layer_ids if not 0 <= layer < target.num_layers]
        if outside:
            raise LaunchError(
                f"--speculative-draft-model-path {draft.path}: the draft reads the output of target layers {outside} "
                f"(dflash_config.target_layer_ids), but the target {target.path} has layers 0 to "
                f"{target.num_layers - 1}. Give the draft that was trained for this target."
            )
        if not target.captures_last_layer and target.num_layers - 1 in draft.target_layer_ids:
            raise LaunchError(
                f"--speculative-draft-model-path {draft.path}: the draft reads the output of the last target layer "
                f"{target.num_layers - 1} (dflash_config.target_layer_ids), which {target.class_name} cannot hand "
                "out. Give a draft that reads earlier layers."
            )
    if draft.num_target_layers is not None and draft.num_target_layers != target.num_layers:
        logger.warning(
            "DFLASH: the draft %s was trained on a target of %d layers, %s has %d. If the target was not pruned from "
            "that one, this is the wrong draft and nearly every draft token will be rejected.",
            draft.path,
            draft.num_target_layers,
            target.path,
            target.num_layers,
        )
