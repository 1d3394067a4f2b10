"""Refuses requests that would end the model process, in the process that answers them.

The model process trusts what it is sent: an id behind the embedding's last row, a negative start or an empty prompt is
an index error or a failed assertion there, and ends the server for everyone. Each check raises ValueError, which
upstream's endpoints answer with HTTP 400 and the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.embed_types import PositionalEmbeds

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput, SessionParams

# Fields of a batch that hold one value for all requests or a list with one per request.
_PER_REQUEST_FIELDS = (
    "sampling_params",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_sampling_mask",
    "sampling_logprobs_mode",
    "lora_path",
    "custom_logit_processor",
)

# Arguments that the server itself passes to the chat template.
_TEMPLATE_ARGUMENTS_OF_THE_SERVER = frozenset(
    {"add_generation_prompt", "conversation", "messages", "return_dict", "tokenize", "tools"}
)


def check_embeddings_given(request: GenerateReqInput) -> None:
    """Refuse ``input_embeds`` without a row or with rows without a value. Call it before the batch is measured."""
    embeddings = request.input_embeds
    while isinstance(embeddings, list):
        if not embeddings:
            raise ValueError("input_embeds is empty; give one row of hidden states per prompt token.")
        embeddings = embeddings[0]


def check_batch_shape(request: GenerateReqInput) -> None:
    """Refuse lists that do not have one value per prompt, and ``n`` below 1.

    Call it once ``is_single`` and ``batch_size`` are known and nothing has been expanded yet.
    """
    for name in _PER_REQUEST_FIELDS:
        value = getattr(request, name)
        if not isinstance(value, list):
            continue
        if request.is_single:
            raise ValueError(f"{name} is a list of {len(value)} for a single prompt; give one value.")
        if len(value) != request.batch_size:
            raise ValueError(f"{name} has {len(value)} values for {request.batch_size} prompts; give one per prompt.")
    lists = request.token_ids_logprob
    nested = isinstance(lists, list) and bool(lists) and isinstance(lists[0], list)
    if nested and not request.is_single and len(lists) != request.batch_size:
        raise ValueError(f"token_ids_logprob has {len(lists)} lists for {request.batch_size} prompts.")
    parameters = request.sampling_params
    for one in parameters if isinstance(parameters, list) else [parameters]:
        samples = one.get("n") if isinstance(one, Mapping) else None
        if samples is not None and (not isinstance(samples, int) or samples < 1):
            raise ValueError(f"n must be an integer of at least 1, got {samples!r}.")


def check_generate_request(
    request: GenerateReqInput | EmbeddingReqInput, input_ids: Sequence[int] | None, model_config: ModelConfig
) -> None:
    """Refuse one request whose prompt, log-probability fields or logit processor the model process cannot serve.

    ``input_ids`` is the tokenized prompt, None where embeddings take its place.
    """
    from sglang.srt.managers.io_struct import GenerateReqInput

    if request.contains_mm_input() and not model_config.is_multimodal:
        # Upstream drops them, so the model would answer about a picture that it has not seen.
        raise ValueError("The request has images, video or audio, and this model reads text only.")
    if not isinstance(request, GenerateReqInput):
        return
    overrides = request.positional_embed_overrides
    if overrides is not None and not isinstance(overrides, PositionalEmbeds):
        raise ValueError(
            f"positional_embed_overrides must be PositionalEmbeds, got {type(overrides).__name__}; it cannot be sent "
            "over HTTP."
        )
    if input_ids is not None:
        _check_prompt(request, input_ids, model_config.vocab_size)
    if request.input_embeds is not None:
        _check_embeddings(request.input_embeds, model_config)
    if request.custom_logit_processor:
        _check_logit_processor(request.custom_logit_processor)
    _check_range("top_logprobs_num", request.top_logprobs_num, 0, model_config.vocab_size)
    _check_range("logprob_start_len", request.logprob_start_len, -1, None)


def session_parameters(fields: Any) -> SessionParams:
    """The session parameters of a request; ValueError names what is wrong with them."""
    from sglang.srt.managers.io_struct import SessionParams

    known = SessionParams.__struct_fields__
    if not isinstance(fields, Mapping) or not set(fields) <= set(known):
        raise ValueError(f"session_params must be an object with the fields {', '.join(known)}; got {fields!r}.")
    return SessionParams(**fields)


def template_arguments_error(arguments: Mapping[str, Any] | None) -> str | None:
    """What is wrong with a chat request's ``chat_template_kwargs``, or None."""
    reserved = sorted(_TEMPLATE_ARGUMENTS_OF_THE_SERVER.intersection(arguments or {}))
    if not reserved:
        return None
    return f"chat_template_kwargs must not set {', '.join(reserved)}: the server passes them to the template itself."


def _check_prompt(request: GenerateReqInput, input_ids: Sequence[int], vocab_size: int) -> None:
    continues_session = isinstance(request.session_params, Mapping) and bool(request.session_params.get("id"))
    if len(input_ids) == 0:
        if not continues_session:
            raise ValueError("The prompt has no tokens. Send at least one.")
        return
    if request.contains_mm_input():
        return  # placeholders of images and audio are ids of their own, replaced later
    lowest, highest = min(input_ids), max(input_ids)
    # An adapter may bring tokens of its own.
    too_high = highest >= vocab_size and request.lora_path is None
    if lowest < 0 or too_high:
        raise ValueError(
            f"input_ids contains token id {lowest if lowest < 0 else highest}; the model's vocabulary is "
            f"0 to {vocab_size - 1}."
        )


def _check_embeddings(embeddings: list[list[float]], model_config: ModelConfig) -> None:
    widths = {len(row) for row in embeddings}
    if widths != {model_config.hidden_size}:
        raise ValueError(
            f"input_embeds has rows of {sorted(widths)} values; the model's hidden size is {model_config.hidden_size}."
        )
    if len(embeddings) >= model_config.context_len:
        raise ValueError(
            f"input_embeds has {len(embeddings)} rows; the model's context length is {model_config.context_len} tokens."
        )


def _check_logit_processor(serialized: str) -> None:
    """Read the processor as the model process will. Only servers that allow such code, and so run it, get here."""
    from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

    try:
        processor = CustomLogitProcessor.from_str(serialized)
    except Exception as error:
        raise ValueError(f"custom_logit_processor cannot be read: {type(error).__name__}: {error}.") from error
    if not callable(processor):
        raise ValueError(f"custom_logit_processor is a {type(processor).__name__}, which cannot be called.")


def _check_range(name: str, value: int | None, lowest: int, highest: int | None) -> None:
    if value is None:
        return
    if value < lowest or (highest is not None and value > highest):
        bounds = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
        raise ValueError(f"{name} must be {bounds}, got {value}.")
