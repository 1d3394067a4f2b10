"""Adjusted logits at a node equal what upstream's plain decoding computes after emitting the path to that node."""

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_layout import chain_parents
from sglang.srt.speculative.draft_tree.emitted_tokens import EmittedHistory
from sglang.srt.speculative.draft_tree.node_adjustments import adjust_node_logits, path_counts
from sglang.srt.speculative.draft_tree.penalty_counts import count_tokens, penalty_state

from . import batches, trees

VOCAB = 16
CONTROLS = {
    "frequency": dict(frequency_penalty=0.7),
    "presence": dict(presence_penalty=1.3),
    "repetition": dict(repetition_penalty=1.5),
    "reward": dict(frequency_penalty=-0.4, repetition_penalty=0.7),
    "min_new_tokens": dict(min_new_tokens=6),
    "logit_bias": dict(logit_bias={"3": 4.0, "9": -100.0}),
    "all": dict(
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        repetition_penalty=1.2,
        min_new_tokens=5,
        logit_bias={"7": 2.5},
    ),
}


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published():
        yield


def plain_logits(sampling: dict, emitted: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Upstream's logits of one request that emitted these tokens one after the other."""
    info = batches.sampling_info([batches.request(**sampling)], VOCAB)
    for token in emitted:
        info.penalizer_orchestrator.cumulate_output_tokens(torch.tensor([token]))
    adjusted = logits[None].clone()
    info.apply_logits_bias(adjusted)
    return adjusted[0]


def round_information(samplings: list[dict], emitted: list[list[int]]):
    """A decode round's SamplingBatchInfo of requests that have emitted these tokens, the root included."""
    info = batches.sampling_info([batches.request(**sampling) for sampling in samplings], VOCAB)
    lengths = torch.tensor([len(tokens) for tokens in emitted])
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in emitted], batch_first=True)
    count_tokens(info.penalizer_orchestrator, tokens, lengths)
    copy = info.copy_for_forward()
    copy.emitted_history = EmittedHistory(penalty_state(info.penalizer_orchestrator), tokens, lengths)
    copy.keep_alive = info
    return copy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("nodes", [1, 4, 12])
@pytest.mark.parametrize("name", CONTROLS)
def test_every_node_of_random_trees_equals_plain_decoding(name, nodes, dtype):
    """Few tokens, so that paths repeat the output's tokens and their own; a request without controls beside it."""
    rng = np.random.default_rng(nodes)
    samplings = [CONTROLS[name], {}, CONTROLS[name]]
    emitted = [rng.integers(0, 5, count).tolist() for count in (1, 3, 4)]
    parents = [trees.random_parents(rng, nodes) for _ in samplings]
    tokens = [[emitted[row][-1], *rng.integers(0, 5, nodes - 1).tolist()] for row in range(3)]
    logits = torch.randn(3 * nodes, VOCAB, generator=torch.Generator().manual_seed(nodes)).to(dtype) * 4
    expected = [
        plain_logits(
            samplings[row],
            emitted[row] + trees.path_below_root(tokens[row], parents[row], node),
            logits[row * nodes + node],
        )
        for row in range(3)
        for node in range(nodes)
    ]
    untouched = logits.clone()
    adjust_node_logits(logits, torch.tensor(tokens), torch.tensor(parents), round_information(samplings, emitted))
    # One unit in the last place more than exact: upstream rounds after each kind of penalty.
    torch.testing.assert_close(logits, torch.stack(expected))
    assert not torch.equal(logits, untouched)


def test_how_often_each_token_stands_on_the_path_to_each_node():
    counts = path_counts(torch.tensor([[5, 5, 6, 5]]), torch.ones(4, 4).tril().bool()[None])
    assert counts[0].int().tolist() == [[0, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [2, 2, 1, 2]]


def accept_greedily(logits, tokens, info):
    """One greedy round over chains: the accepted tokens of each request."""
    parents = chain_parents(*tokens.shape, "cpu")
    adjust_node_logits(logits, tokens, parents, info)
    path = walk(tokens, parents, logits.argmax(dim=-1).view(tokens.shape))
    return [path.tokens[row, : path.length[row]].tolist() for row in range(len(tokens))]


def test_repetition_penalty_counts_the_candidates_before_a_node_r05():
    """The target always wants 5, then 6, 7, 8; once emitted, penalty 1.5 puts each of them behind the others."""
    logits = torch.full((2 * 4, VOCAB), 0.1)
    logits[:, 5], logits[:, 6], logits[:, 7], logits[:, 8] = 7.0, 5.0, 4.9, 4.8
    tokens = torch.tensor([[5, 6, 7, 8], [5, 5, 5, 5]])
    info = round_information([dict(repetition_penalty=1.5)] * 2, [[5], [5]])
    assert accept_greedily(logits, tokens, info) == [[6, 7, 8, 5], [6]]


@pytest.mark.parametrize("emitted, expected", [(1, [9, 9, 9, 9]), (3, [9, 9, 9, batches.EOS]), (6, [batches.EOS])])
def test_the_end_is_held_back_along_the_path_until_min_new_tokens_r05(emitted, expected):
    logits = torch.zeros(4, VOCAB)
    logits[:, batches.EOS], logits[:, 9] = 3.0, 2.0
    tokens = torch.tensor([[9, 9, 9, 9]])
    info = round_information([dict(min_new_tokens=6)], [[9] * emitted])
    assert accept_greedily(logits, tokens, info) == [expected]


def test_a_round_without_controls_leaves_the_logits_alone():
    logits = torch.randn(4, VOCAB)
    before = logits.clone()
    info = batches.sampling_info([batches.request()], VOCAB).copy_for_forward()
    adjust_node_logits(logits, torch.zeros(1, 4, dtype=torch.int64), chain_parents(1, 4, "cpu"), info)
    assert torch.equal(logits, before)
