"""Who holds what: the parallel layout of a launch, and the share of each stored tensor that lies on one GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .checkpoint import Tensor

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.")
_EMBEDDING = re.compile(r"embed_tokens|(?:^|\.)wte\.")
_HEAD = re.compile(r"(?:^|\.)lm_head\.|(?:^|\.)(?:model\.)?norm\.weight$")
# On every rank whole: norms, routers, and the projections into the latent space of MLA, which no head owns.
_WHOLE = re.compile(r"norm|\.gate\.|router|q_a_proj|kv_a_proj|e_score_correction_bias")
_KEY_VALUE = re.compile(r"\.(?:k_proj|v_proj)\.")
_ATTENTION = re.compile(r"attn|attention")


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallel groups.

    ``kv_heads`` is None where keys and values are latent and belong to no head. ``embeds_at_end``: the last stage has
    the word embedding too, as its head or for a draft that borrows it.
    """

    tp_size: int
    pp_size: int
    ep_size: int
    attention_tp_size: int
    layers: int
    kv_heads: int | None
    embeds_at_end: bool = False
    stages: tuple[tuple[int, int], ...] = ()  # first layer and the one behind the last, by pp_rank

    @property
    def world(self) -> int:
        return self.tp_size * self.pp_size

    @property
    def expert_tp_size(self) -> int:
        """GPUs that split one expert between them."""
        return max(1, self.tp_size // self.ep_size)

    def kv_heads_of_rank(self) -> int | None:
        return None if self.kv_heads is None else max(1, self.kv_heads // self.attention_tp_size)

    def stage(self, pp_rank: int) -> tuple[int, int]:
        return self.stages[pp_rank] if self.stages else (0, self.layers)

    def share(self, tensor: Tensor, pp_rank: int) -> float:
        """Bytes of ``tensor`` on each GPU of one stage; exact for weights that split evenly."""
        name = tensor.name
        if not self._on_stage(name, pp_rank):
            return 0.0
        if _EXPERT.search(name):
            return tensor.bytes / self.tp_size  # whole experts over ep ranks, each split over the rest
        if _WHOLE.search(name):
            return float(tensor.bytes)
        if _KEY_VALUE.search(name) and self.kv_heads is not None:
            return tensor.bytes / min(self.attention_tp_size, self.kv_heads)  # fewer heads than ranks are repeated
        return tensor.bytes / (self.attention_tp_size if _ATTENTION.search(name) else self.tp_size)

    def bytes_of_rank(self, tensors: Iterable[Tensor], pp_rank: int) -> float:
        return sum(self.share(tensor, pp_rank) for tensor in tensors)

    def _on_stage(self, name: str, pp_rank: int) -> bool:
        last = pp_rank == self.pp_size - 1
        if layer := _LAYER.search(name):
            begin, end = self.stage(pp_rank)
            beyond = int(layer[1]) >= self.layers  # multi-token prediction layers, which plain decoding does not load
            return not beyond and begin <= int(layer[1]) < end
        if _HEAD.search(name):
            return last
        if _EMBEDDING.search(name):
            return pp_rank == 0 or (last and self.embeds_at_end)
        return True  # vision towers and the like, which upstream builds on every stage
