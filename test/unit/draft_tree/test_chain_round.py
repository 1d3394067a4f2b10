"""The seams around upstream's worker: which batches accept by draws, and what the others keep."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from sglang.srt.speculative.draft_tree import chain_round
from sglang.srt.speculative.draft_tree.emitted_tokens import EmittedHistory
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite

from . import batches

VOCAB = 8
UPSTREAM = object()


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published(enable_custom_logit_processor=True):
        yield


class Worker:
    block_size = 4

    def __init__(self):
        self._selector_sample = None
        self.calls, self.synced = [], []
        self._tp_sync = SimpleNamespace(sync=lambda site, values: self.synced.append((site, values.clone())))
        self.target_worker = SimpleNamespace(model_runner=SimpleNamespace(sampler=batches.plain_sampler()))

    @chain_round.accepts_target_draws
    def _accept_block(self, **arguments):
        self.calls.append(arguments)
        return UPSTREAM


def peaked_logits(favourites: list[list[int]]) -> torch.Tensor:
    """Logits [bs * nodes, vocab] under which each node wants its favourite, at any sane temperature."""
    logits = torch.zeros(sum(map(len, favourites)), VOCAB)
    logits[torch.arange(len(logits)), [token for row in favourites for token in row]] = 60.0
    return logits


def accept(worker, info, candidates, logits, **changes):
    arguments = dict(
        candidates=torch.tensor(candidates),
        next_token_logits=logits,
        sampling_info=info,
        draft_input=SimpleNamespace(max_top_k=VOCAB, uniform_top_k_value=None),
        prefix_lens=torch.tensor([10] * len(candidates)),
        bs=len(candidates),
    )
    return worker._accept_block(**{**arguments, **changes})


def test_a_sampled_batch_is_accepted_by_draws_r08():
    worker = Worker()
    info = batches.sampling_info([batches.request(temperature=1.0), batches.request(temperature=0.0)], VOCAB)
    logits = peaked_logits([[2, 3, 7, 1], [5, 6, 1, 4]])
    accepted, committed, bonus, tokens, new_seq_lens = accept(worker, info, [[1, 2, 3, 4], [4, 5, 6, 1]], logits)
    assert (accepted.tolist(), committed.tolist(), bonus.tolist()) == ([2, 3], [3, 4], [7, 4])
    assert tokens.tolist() == [[2, 3, 7, 0], [5, 6, 1, 4]]
    assert new_seq_lens is None and not worker.calls
    ((site, draws),) = worker.synced
    assert site == SpecTpSyncSite.DFLASH_ACCEPT_SAMPLE and draws.tolist() == [[2, 3, 7, 1], [5, 6, 1, 4]]


def test_every_rank_walks_along_the_draws_of_rank_zero():
    worker = Worker()
    worker._tp_sync.sync = lambda site, values: values.fill_(6)
    info = batches.sampling_info([batches.request(temperature=1.0)], VOCAB)
    _, _, bonus, tokens, _ = accept(worker, info, [[1, 6, 6, 3]], peaked_logits([[2, 2, 2, 2]]))
    assert bonus.tolist() == [6] and tokens.tolist() == [[6, 6, 6, 0]]


def test_a_greedy_batch_is_upstreams():
    worker = Worker()
    info = batches.sampling_info([batches.request(temperature=0.0)], VOCAB)
    assert accept(worker, info, [[1, 2]], peaked_logits([[2, 3]])) is UPSTREAM
    info = batches.sampling_info([batches.request(temperature=1.0)], VOCAB)
    predicted = torch.tensor([2, 3])
    assert accept(worker, info, [[1, 2]], None, target_predict=predicted) is UPSTREAM
    assert worker.calls[1]["target_predict"] is predicted
    assert accept(worker, None, [[1, 2]], peaked_logits([[2, 3]])) is UPSTREAM


@pytest.mark.parametrize(
    "sampling, kept",
    [(dict(temperature=0.8), True), (dict(top_p=0.9), True), (dict(min_p=0.1), False)],
)
def test_a_draft_that_sampled_keeps_the_ratio_test_unless_it_lacks_a_filter(sampling, kept):
    worker = Worker()
    worker._selector_sample = (torch.empty(0, device="meta"), None)  # on an accelerator
    info = batches.sampling_info([batches.request(**sampling)], VOCAB)
    assert chain_round.keeps_ratio_test(worker, info) is kept
    worker._selector_sample = (torch.empty(0), None)  # its sampler does not run here
    assert not chain_round.keeps_ratio_test(worker, info)


def test_lowered_thresholds_keep_the_ratio_test_where_it_is_available(monkeypatch):
    worker, sampled = Worker(), batches.request(temperature=1.0)
    for available in (True, False):
        monkeypatch.setattr(chain_round, "is_dflash_sampling_verify_available", lambda: available)  # noqa: B023
        assert not chain_round.keeps_ratio_test(worker, batches.sampling_info([sampled], VOCAB))
        with batches.published(speculative_accept_threshold_acc=0.5):
            assert chain_round.keeps_ratio_test(worker, batches.sampling_info([sampled], VOCAB)) is available


def test_a_seed_is_never_left_to_the_ratio_test():
    worker = Worker()
    worker._selector_sample = (torch.empty(0, device="meta"), None)
    with batches.published(enable_deterministic_inference=True, speculative_accept_threshold_single=0.5):
        info = batches.sampling_info([batches.request(temperature=1.0, sampling_seed=1)], VOCAB)
        assert not chain_round.keeps_ratio_test(worker, info)


class Prefer(CustomLogitProcessor):
    def __call__(self, logits, custom_param_list):
        logits[:, 6] = 1000.0
        return logits


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_custom_processors_have_the_last_word_r05(temperature):
    worker = Worker()
    req = batches.request(temperature=temperature, custom_logit_processor=Prefer.to_str())
    info = batches.sampling_info([req], VOCAB)
    info.emitted_history = EmittedHistory(None, torch.tensor([[1]]), torch.tensor([1]))
    logits = peaked_logits([[2, 3]])
    accept(worker, info, [[1, 6]], logits)
    assert logits.argmax(dim=-1).tolist() == [6, 6]
    assert worker.calls or worker.synced[0][1].tolist() == [[6, 6]]


@pytest.mark.parametrize("mode, bonus", [("fixed", 100), ("real-draft-token", 3)])
def test_simulated_acceptance_overrides_the_walk(monkeypatch, mode, bonus):
    monkeypatch.setattr(chain_round, "SIMULATE_ACC_LEN", 3.0)
    monkeypatch.setattr(chain_round, "SIMULATE_ACC_METHOD", "match-expected")
    monkeypatch.setattr(chain_round, "SIMULATE_ACC_TOKEN_MODE", mode)
    info = batches.sampling_info([batches.request(temperature=1.0)], VOCAB)
    accepted, committed, bonus_tokens, tokens, _ = accept(Worker(), info, [[1, 4, 5, 6]], peaked_logits([[2, 2, 3, 2]]))
    assert (accepted.tolist(), committed.tolist(), bonus_tokens.tolist()) == ([2], [3], [bonus])
    assert tokens[0, 2] == bonus


def test_penalties_need_more_than_an_argmax_per_node_r05():
    class Skipper:
        can_skip = chain_round.needs_full_logits(lambda self, batch, sampling_info: True)

    plain = batches.sampling_info([batches.request()], VOCAB)
    penalized = batches.sampling_info([batches.request(repetition_penalty=1.2)], VOCAB)
    assert Skipper().can_skip(None, plain.copy_for_forward())
    assert Skipper().can_skip(None, None)
    assert not Skipper().can_skip(None, penalized.copy_for_forward())
