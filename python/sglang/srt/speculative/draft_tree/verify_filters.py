"""Top-k, top-p and min-p together in the target distribution that upstream's ratio test is given."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from sglang.kernels.draft_tree.kept_probs import kept_by_filters


def joint_filters(build_target_probs: Callable) -> Callable:
    """Wrap `build_speculative_verify_target_probs`, [bs * nodes, vocab] logits to [bs, nodes, vocab] probabilities.

    Plain decoding measures top-p on the whole distribution and keeps what both filters keep. Upstream measures it on
    what top-k has left, which keeps fewer tokens, and leaves min-p out. One filter alone is the same either way and
    stays upstream's.
    """

    @functools.wraps(build_target_probs)
    def build(*, next_token_logits, sampling_info, draft_token_num, bs, max_top_k=None, **rest):
        two_filters = sampling_info.need_top_k_sampling and sampling_info.need_top_p_sampling
        if not (two_filters or sampling_info.need_min_p_sampling):
            return build_target_probs(
                next_token_logits=next_token_logits,
                sampling_info=sampling_info,
                draft_token_num=draft_token_num,
                bs=bs,
                max_top_k=max_top_k,
                **rest,
            )
        per_request = (sampling_info.temperatures, sampling_info.top_ks, sampling_info.top_ps, sampling_info.min_ps)
        temperatures, top_ks, top_ps, min_ps = (
            values.view(-1, 1).repeat_interleave(draft_token_num, dim=0) for values in per_request
        )
        probs = torch.softmax(next_token_logits / temperatures, dim=-1)
        vocab_size = probs.shape[-1]
        # `max_top_k` is the largest top-k of the batch: nothing behind that many tokens can be kept.
        ranked, token_ids = probs.topk(min(max_top_k or vocab_size, vocab_size), dim=-1)
        ranked = torch.where(kept_by_filters(ranked, top_ks, top_ps, min_ps), ranked, 0.0)
        ranked = ranked / ranked.sum(dim=-1, keepdim=True)
        return torch.zeros_like(probs).scatter_(1, token_ids, ranked).view(bs, draft_token_num, -1)

    return build
