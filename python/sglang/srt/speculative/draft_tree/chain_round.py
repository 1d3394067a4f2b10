"""The seams between upstream's DFLASH worker and the stages of this package, for the chain that it verifies.

What stays upstream's: the greedy accept (its fused kernels on CUDA), and the ratio test where `keeps_ratio_test` says
so. A round of greedy requests without further settings runs upstream's kernels and no other: small models wait for the
host, which a launch more would hold up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_layout import chain_parents
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.dflash_utils import apply_dflash_simulated_acceptance, is_dflash_sampling_verify_available
from sglang.srt.speculative.draft_tree.accept_thresholds import LOSSLESS, THRESHOLDS
from sglang.srt.speculative.draft_tree.custom_processors import apply_custom_processors
from sglang.srt.speculative.draft_tree.emitted_tokens import needs_history
from sglang.srt.speculative.draft_tree.node_adjustments import adjust_node_logits, has_node_adjustments
from sglang.srt.speculative.draft_tree.target_draw import draw_target_tokens
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from sglang.srt.speculative.spec_utils import SIMULATE_ACC_LEN, SIMULATE_ACC_METHOD, SIMULATE_ACC_TOKEN_MODE

if TYPE_CHECKING:
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
    from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2


def adjust_chain_logits(logits: torch.Tensor, tokens: torch.Tensor, sampling_info: SamplingBatchInfo) -> None:
    """`adjust_node_logits` for chains; `logits` [bs * nodes, vocab], `tokens` [bs, nodes]."""
    if has_node_adjustments(sampling_info):
        adjust_node_logits(logits, tokens, chain_parents(*tokens.shape, device=tokens.device), sampling_info)


def accepts_target_draws(accept_block: Callable) -> Callable:
    """Wrap the worker's `_accept_block`: sampled batches accept by the target's own draws.

    Custom logit processors run here, for greedy batches too: behind the grammar mask, as in plain decoding.
    """

    @functools.wraps(accept_block)
    def accept(self, *, candidates, next_token_logits, sampling_info, prefix_lens, target_predict=None, **rest):
        if sampling_info is not None and sampling_info.has_custom_logit_processor:
            parents = chain_parents(*candidates.shape, device=candidates.device)
            apply_custom_processors(next_token_logits, candidates, parents, prefix_lens, sampling_info)
        greedy = target_predict is not None or sampling_info is None or sampling_info.is_all_greedy
        if greedy or keeps_ratio_test(self, sampling_info):
            return accept_block(
                self,
                candidates=candidates,
                next_token_logits=next_token_logits,
                sampling_info=sampling_info,
                prefix_lens=prefix_lens,
                target_predict=target_predict,
                **rest,
            )
        positions = prefix_lens[:, None] + torch.arange(candidates.shape[1], device=candidates.device)
        sampler = self.target_worker.model_runner.sampler
        draws = draw_target_tokens(sampler, next_token_logits, sampling_info, positions)
        self._tp_sync.sync(SpecTpSyncSite.DFLASH_ACCEPT_SAMPLE, draws)
        path = walk(candidates, chain_parents(*candidates.shape, device=candidates.device), draws)
        accepted_drafts = path.length - 1
        if SIMULATE_ACC_LEN > 0:
            apply_dflash_simulated_acceptance(
                candidates=candidates,
                target_predict=draws,
                accept_len=accepted_drafts,
                commit_lens=path.length,
                bonus=path.bonus,
                out_tokens=path.tokens,
                simulate_acc_len=SIMULATE_ACC_LEN,
                simulate_acc_method=SIMULATE_ACC_METHOD,
                simulate_acc_token_mode=SIMULATE_ACC_TOKEN_MODE,
            )
        return accepted_drafts, path.length, path.bonus, path.tokens, None

    return accept


def keeps_ratio_test(worker: DFlashWorkerV2, sampling_info: SamplingBatchInfo) -> bool:
    """Whether a sampled batch is accepted by upstream's ratio test instead of by draws.

    A seed fixes the draw, so then it never is. Otherwise it accepts more tokens of a draft that samples and says from
    what (selector, LiLiCorr), and it is the only rule that takes acceptance thresholds.
    """
    if sampling_info.sampling_seed is not None:
        return False
    if worker._selector_sample is not None:
        # The sampler of that path runs on accelerators alone, and knows no min-p.
        candidate_ids, _ = worker._selector_sample
        return candidate_ids.device.type != "cpu" and not sampling_info.need_min_p_sampling
    return is_dflash_sampling_verify_available() and any(getattr(get_spec(), name) != LOSSLESS for name in THRESHOLDS)


def needs_full_logits(can_skip: Callable) -> Callable:
    """Wrap the worker's `_can_skip_verify_logits`: an argmax per node is not enough where penalties apply."""

    @functools.wraps(can_skip)
    def decide(self, batch, sampling_info):
        return not needs_history(sampling_info) and can_skip(self, batch, sampling_info)

    return decide


def draws_every_sampled_batch(validate: Callable) -> Callable:
    """Take the place of `_validate_phase1_sampling_support`, which announces a fallback to greedy that is gone."""

    @functools.wraps(validate)
    def accept_all(self, batch):
        return None

    return accept_all
