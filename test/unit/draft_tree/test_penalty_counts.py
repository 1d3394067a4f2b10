"""Counting a round's tokens at once leaves what plain decoding's count, token after token, would leave."""

import pytest
import torch

from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.penalizer_order import additive_first
from sglang.srt.sampling.penaltylib import BatchedFrequencyPenalizer, BatchedRepetitionPenalizer
from sglang.srt.speculative.draft_tree.penalty_counts import count_tokens, penalty_state

from . import batches

VOCAB = 16
PENALTIES = (
    dict(frequency_penalty=0.5, presence_penalty=0.25),
    dict(repetition_penalty=1.5, min_new_tokens=6),
    dict(frequency_penalty=-0.3, repetition_penalty=0.8, presence_penalty=-1.0, min_new_tokens=2),
    dict(),
)


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published():
        yield


def penalizers(requests, **choices):
    info = batches.sampling_info(requests, VOCAB, **choices)
    return info, info.penalizer_orchestrator


def one_by_one(parameters: dict, emitted: list[int]):
    """The state of a request that emitted these tokens, by upstream's own count."""
    info, orchestrator = penalizers([batches.request(**parameters)])
    for token in emitted:
        orchestrator.cumulate_output_tokens(torch.tensor([token]))
    return info, penalty_state(orchestrator)


def assert_same_row(state, row: int, parameters: dict, emitted: list[int]) -> None:
    """The row of `state` equals the state of the request alone, for each penalty that it asks for."""
    alone, expected = one_by_one(parameters, emitted)
    assert expected is not None, parameters
    for kind in ("frequency", "presence", "repetition"):
        wanted = getattr(expected, kind)
        if wanted is not None:
            torch.testing.assert_close(getattr(state, kind).earned[row], wanted.earned[0])
    if expected.minimum_length is not None:
        assert state.minimum_length.emitted[row].item() == expected.minimum_length.emitted[0].item()
    del alone


def test_scripted_rounds_of_several_tokens_equal_one_token_at_a_time():
    """Three requests, blocks of four: repeated tokens inside a block, across blocks, and a row with nothing new."""
    rounds = [
        ([[5, 0, 0, 0], [6, 0, 0, 0], [7, 0, 0, 0]], [1, 1, 1]),
        ([[5, 5, 9, 1], [3, 8, 0, 0], [7, 4, 7, 4]], [3, 2, 4]),
        ([[9, 9, 9, 9], [6, 0, 0, 0], [1, 2, 3, 0]], [4, 0, 3]),
    ]
    requests = [batches.request(**parameters) for parameters in PENALTIES[:3]]
    info, orchestrator = penalizers(requests)
    emitted = [[], [], []]
    for tokens, lengths in rounds:
        count_tokens(orchestrator, torch.tensor(tokens), torch.tensor(lengths))
        for row in range(3):
            emitted[row] += tokens[row][: lengths[row]]
        for row in range(3):
            assert_same_row(penalty_state(orchestrator), row, PENALTIES[row], emitted[row])
    assert info.penalizer_orchestrator is orchestrator


def test_a_round_after_filter_and_merge_counts_for_the_right_requests():
    first, orchestrator = penalizers([batches.request(**parameters) for parameters in PENALTIES[:3]])
    count_tokens(orchestrator, torch.tensor([[4, 5], [6, 7], [8, 9]]), torch.tensor([2, 1, 2]))
    first.keep_alive.reqs = [first.keep_alive.reqs[2], first.keep_alive.reqs[0]]
    first.filter_batch([2, 0], torch.tensor([2, 0]))
    second, _ = penalizers([batches.request(), batches.request(**PENALTIES[1])])
    first.merge_batch(second)
    count_tokens(orchestrator, torch.tensor([[8, 1], [4, 0], [3, 3], [2, 6]]), torch.tensor([2, 1, 2, 2]))

    state = penalty_state(orchestrator)
    assert_same_row(state, 0, PENALTIES[2], [8, 9, 8, 1])
    assert_same_row(state, 1, PENALTIES[0], [4, 5, 4])
    assert_same_row(state, 3, PENALTIES[1], [2, 6])
    assert state.frequency.earned[2].abs().sum() == 0 and (state.repetition.earned[2] == 1).all()


def test_a_batch_without_penalties_has_no_state():
    _, orchestrator = penalizers([batches.request(temperature=0.7)])
    count_tokens(orchestrator, torch.tensor([[1]]), torch.tensor([1]))
    assert penalty_state(orchestrator) is None


def test_a_retracted_request_keeps_its_counts_r05():
    output = [4, 4, 9, 11, 4]
    requests = [batches.request(output=output, **PENALTIES[2]), batches.request(**PENALTIES[1])]
    info, orchestrator = penalizers(requests)
    assert_same_row(penalty_state(orchestrator), 0, PENALTIES[2], output)
    assert penalty_state(orchestrator).minimum_length.emitted[1].item() == 0
    assert info.penalizer_orchestrator is orchestrator


def test_a_prefill_from_another_server_leaves_its_token_to_the_first_step():
    info, orchestrator = penalizers([batches.request(output=[4], **PENALTIES[0])], mode=ForwardMode.PREBUILT)
    assert penalty_state(orchestrator).frequency.earned.abs().sum() == 0
    info, orchestrator = penalizers([batches.request(output=[4, 6, 8], **PENALTIES[0])], mode=ForwardMode.PREBUILT)
    assert_same_row(penalty_state(orchestrator), 0, PENALTIES[0], [4, 6])
    assert info.penalizer_orchestrator is orchestrator


def test_scaling_penalties_come_last_in_every_process():
    _, orchestrator = penalizers([batches.request(**PENALTIES[2])])
    scaling = [kind.is_multiplicative for kind in orchestrator.penalizers]
    assert scaling == [False, False, False, True]
    kinds = (BatchedRepetitionPenalizer, BatchedFrequencyPenalizer)
    assert additive_first(kinds) == additive_first(reversed(kinds)) == list(reversed(kinds))
