"""A chain of greedy requests without further settings: upstream's round, and nothing of ours that the device would see.

On a GPU such a round waits for the host, and each launch of ours would be a launch more.
"""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.draft_tree.chain_round import accepts_target_draws, adjust_chain_logits
from sglang.srt.speculative.draft_tree.emitted_tokens import forward_sampling_info, remembers_emitted_tokens
from sglang.srt.speculative.draft_tree.width_relay import sends_width_choices

from . import batches

VOCAB, NODES = 16, 4


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published(enable_custom_logit_processor=True):
        yield


class Operations(TorchDispatchMode):
    """Names of all torch operations within, views and allocations among them."""

    def __enter__(self):
        self.names: list[str] = []
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Worker:
    """The seams of a round around an upstream that does nothing."""

    block_size = NODES
    _selector_sample = None

    @accepts_target_draws
    def _accept_block(self, **_):
        return None

    @remembers_emitted_tokens
    def forward_batch_generation(self, batch, logits, tokens, lengths):
        adjust_chain_logits(logits, tokens, batch.sampling_info)
        self._accept_block(
            candidates=tokens,
            next_token_logits=logits,
            sampling_info=batch.sampling_info,
            prefix_lens=lengths,
        )
        return SimpleNamespace(next_token_ids=tokens, accept_lens=lengths)


def decoding(requests):
    batch = batches.batch(
        requests, ForwardMode.DECODE, batches.request_table(), rows=range(len(requests)), has_grammar=False
    )
    batch.return_logprob = False
    batch.sampling_info = batches.sampling_info(requests, VOCAB)
    return batch


def operations_of_a_round(batch) -> tuple[list[str], list[str]]:
    """What the information for a forward takes, and what the seams of the forward itself add."""
    bs = batch.batch_size()
    logits = torch.zeros(bs * NODES, VOCAB)
    tokens, lengths = torch.ones(bs, NODES, dtype=torch.int64), torch.ones(bs, dtype=torch.int64)
    with Operations() as before:
        batch.sampling_info = forward_sampling_info(batch.sampling_info, batch, None)
    with Operations() as within:
        Worker().forward_batch_generation(batch, logits, tokens, lengths)
    return before.names, within.names


@pytest.mark.parametrize("bs", [1, 8])
def test_a_greedy_round_asks_the_device_for_nothing_more(bs):
    batch = decoding([batches.request(temperature=0.0)] * bs)
    with Operations() as upstream:
        batch.sampling_info.copy_for_forward()
    assert operations_of_a_round(batch) == (upstream.names, [])


@pytest.mark.parametrize("setting", [dict(repetition_penalty=1.2), dict(logit_bias={"3": 1.0})])
def test_a_request_with_a_setting_pays_for_it(setting):
    """Or the test above would count in the wrong place."""
    _, within = operations_of_a_round(decoding([batches.request(temperature=0.0, **setting)]))
    assert within


@pytest.mark.parametrize("sampling", [dict(temperature=0.0), dict(temperature=1.0), dict(logit_bias={"3": 1.0})])
@pytest.mark.parametrize("needs", [None, "return_logprob", "has_grammar"])
def test_the_argmax_per_node_is_enough_where_upstream_says_so(sampling, needs):
    batch = decoding([batches.request(**{"temperature": 0.0, **sampling})])
    if needs:
        setattr(batch, needs, True)
    decide, worker = DFlashWorkerV2._can_skip_verify_logits, SimpleNamespace(_selector_sample=None)
    upstream = decide.__wrapped__(worker, batch, batch.sampling_info)
    assert decide(worker, batch, batch.sampling_info) is upstream
    assert upstream is (sampling == dict(temperature=0.0) and needs is None)


def test_nobody_looks_for_the_verify_widths_of_a_chain():
    class Unasked:
        def __getattr__(self, name):
            raise LookupError(name)

    aborts = [object()]
    poll = sends_width_choices(lambda self: aborts)
    scheduler = SimpleNamespace(draft_worker=Unasked())
    assert poll(scheduler) is aborts
    with batches.published(speculative_dflash_tree_budget=8), pytest.raises(LookupError, match="followed_widths"):
        poll(scheduler)
