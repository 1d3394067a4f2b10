"""What a draft pass says about the tokens ahead: a lattice of candidates per depth, with their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import nn


class DraftLattice(NamedTuple):
    """Candidates of each request, at every depth; without `pair_scores` the best comes first.

    The score of a path is the sum of its candidates' scores and, where `pair_scores` is there, of the scores of its
    steps: log-probabilities of the draft, so a path's score falls with its length.
    """

    token_ids: torch.Tensor  # [bs, depths, topk] int64
    scores: torch.Tensor  # [bs, depths, topk] float32
    pair_scores: torch.Tensor | None  # [bs, depths - 1, topk, topk] float32: rank at a depth, rank at the next one


class HeadCandidates:
    """The `topk` most likely tokens of each position, from the target's head on the draft's hidden states.

    The vocabulary may be sharded: every rank contributes its own candidates and its share of the normalizer.
    """

    def __init__(self, lm_head: nn.Module, topk: int) -> None:
        self._lm_head = lm_head
        self.topk = topk

    def __call__(self, hidden_states: torch.Tensor, root_tokens: torch.Tensor) -> DraftLattice:
        """`hidden_states` [bs, depths, hidden] of the masked positions; `root_tokens` [bs] is not needed here."""
        from sglang.srt.models.dflash import candidate_topk

        bs, depths, _ = hidden_states.shape
        # Asked for one candidate, upstream's kernel finds the right logit beside a wrong token.
        token_ids, logits, normalizer = candidate_topk(
            hidden_states.reshape(bs * depths, -1), self._lm_head, max(2, self.topk), with_partition=True
        )
        scores = logits.float() - normalizer.float()[:, None]
        ids, scores = (best.view(bs, depths, -1)[..., : self.topk].contiguous() for best in (token_ids, scores))
        return DraftLattice(ids, scores, None)


class SelectorCandidates:
    """Candidates of a draft with a candidate selector (DFlash2): its transition scores rank the steps of a path.

    The selector scores each step from every candidate to every candidate of the next depth; normalized over the next
    depth they are conditional log-probabilities.
    """

    def __init__(self, draft_model: nn.Module, lm_head: nn.Module) -> None:
        draft_model.lm_head = lm_head  # the draft has no head of its own, and its candidates come from this one
        self._draft_model = draft_model
        self.topk = int(draft_model.candidate_selector.top_k)

    def __call__(self, hidden_states: torch.Tensor, root_tokens: torch.Tensor) -> DraftLattice:
        from sglang.srt.speculative.dflash_worker_v2 import _selector_lattice

        token_ids, steps = _selector_lattice(self._draft_model, hidden_states, root_tokens)
        steps = torch.log_softmax(steps.float(), dim=-1)  # [bs, depths, topk before, topk]
        scores = torch.zeros_like(steps[:, :, 0])
        scores[:, 0] = steps[:, 0, 0]  # one predecessor, the root
        return DraftLattice(token_ids, scores, steps[:, 1:].contiguous())


class CapturedLattice:
    """A lattice computed inside the draft's CUDA graph: buffers that each replay fills."""

    def __init__(self, candidates, *, block_size: int, max_bs: int, device: torch.device | str) -> None:
        depths, topk = block_size - 1, candidates.topk
        self._candidates = candidates
        self._block_size = block_size
        self._token_ids = torch.zeros((max_bs, depths, topk), dtype=torch.int64, device=device)
        self._scores = torch.zeros((max_bs, depths, topk), dtype=torch.float32, device=device)
        self._pair_scores = None
        if isinstance(candidates, SelectorCandidates):
            self._pair_scores = torch.zeros((max_bs, depths - 1, topk, topk), dtype=torch.float32, device=device)

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor) -> None:
        """Tail of the draft forward: `hidden_states` [bs * block, hidden], `input_ids` [bs * block]."""
        bs = hidden_states.shape[0] // self._block_size
        blocks = hidden_states.view(bs, self._block_size, -1)
        lattice = self._candidates(blocks[:, 1:], input_ids.view(bs, self._block_size)[:, 0])
        self._token_ids[:bs].copy_(lattice.token_ids)
        self._scores[:bs].copy_(lattice.scores)
        if self._pair_scores is not None:
            self._pair_scores[:bs].copy_(lattice.pair_scores)

    def lattice(self, bs: int) -> DraftLattice:
        """The lattice of the last replay with `bs` requests; valid until the next one."""
        pairs = None if self._pair_scores is None else self._pair_scores[:bs]
        return DraftLattice(self._token_ids[:bs], self._scores[:bs], pairs)
