"""Output heads of models with tied word embeddings under pipeline parallelism.

A tied model has one matrix for two uses: the first stage embeds with it, the last stage projects onto it. When these
are two stages, the last one needs a head of its own, filled from the checkpoint's embedding.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from sglang.srt.layers.quantization.base_config import QuantizationConfig
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

Weights = Iterable[tuple[str, torch.Tensor]]

# The target's word embedding, under the prefixes that checkpoints give it; not an embedding of another tower.
_WORD_EMBEDDING = re.compile(r"((model|backbone|language_model)\.)*(embed_tokens|embeddings)\.weight")


def tied_output_head(
    embedding: nn.Module, config: Any, quant_config: QuantizationConfig | None, prefix: str
) -> nn.Module:
    """The output head of a tied model on this stage: ``embedding`` itself where one stage does everything.

    On the last of several stages it is a head of its own, [vocab_size, hidden_size]; ``load_tied_head`` fills it.
    """
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.utils import add_prefix

    parallel = get_parallel()
    if parallel.pp_group.world_size == 1 or not parallel.pp_group.is_last_rank:
        return embedding
    return ParallelLMHead(
        config.vocab_size,
        config.hidden_size,
        quant_config=quant_config,
        prefix=add_prefix("lm_head", prefix),
        use_attn_tp_group=parallel.enable_dp_lm_head,
    )


def load_tied_head(load_weights: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a model's ``load_weights``: the head of a tied model's last stage is loaded from the word embedding.

    A head that the checkpoint holds all the same is left out then; the two are one matrix.
    """

    @functools.wraps(load_weights)
    def wrapped(model: nn.Module, weights: Weights, *args: Any, **kwargs: Any) -> Any:
        head = _head_to_load(model)
        if head is not None:
            weights = _feeding_head(head, weights)
        return load_weights(model, weights, *args, **kwargs)

    return wrapped


def _head_to_load(model: nn.Module) -> ParallelLMHead | None:
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

    group = getattr(model, "pp_group", None)
    config = getattr(model.config, "text_config", None) or model.config
    tied = getattr(config, "tie_word_embeddings", False)
    if group is None or group.world_size == 1 or not group.is_last_rank or not tied:
        return None
    head = getattr(model, "lm_head", None)
    return head if isinstance(head, ParallelLMHead) else None


def _feeding_head(head: ParallelLMHead, weights: Weights) -> Iterator[tuple[str, torch.Tensor]]:
    for name, weight in weights:
        if name == "lm_head.weight" or name.endswith(".lm_head.weight"):
            continue
        if _WORD_EMBEDDING.fullmatch(name):
            head.weight.weight_loader(head.weight, weight)
        yield name, weight
