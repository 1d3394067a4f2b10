"""The numbers of a row, on requests small enough to count by hand."""

import pytest

from benchmark.sweep.load import RequestRecord
from benchmark.sweep.measures import acceptance, measure
from benchmark.sweep.prompts import Prompt


def meta(tokens: int, accepted_per_round: list[int]) -> dict:
    histogram = [accepted_per_round.count(count) for count in range(max(accepted_per_round, default=-1) + 1)]
    return {
        "completion_tokens": tokens,
        "spec_verify_ct": len(accepted_per_round),
        "spec_num_correct_drafts": sum(accepted_per_round),
        "spec_correct_drafts_histogram": histogram,
    }


def test_r40_bonus_token_counts_and_the_first_token_does_not() -> None:
    # Three rounds accept 0, 3 and 1 drafts: with a bonus token each that is 7 tokens; the prefill gave one before.
    found = acceptance([meta(8, [0, 3, 1])])
    assert found["accept_length"] == pytest.approx(7 / 3, abs=1e-4)
    assert found["tokens_per_round_upstream"] == pytest.approx(8 / 3, abs=1e-4)
    assert found["accepted_at_depth"] == [0.6667, 0.3333, 0.3333]


def test_r38_requests_weigh_by_their_rounds() -> None:
    # 1 round with 3 accepted and 9 with none: 1.3, and not the mean 2.5 of 4 and 1.
    assert acceptance([meta(5, [3]), meta(10, [0] * 9)])["accept_length"] == 1.3


def test_depths_of_requests_of_unequal_depth_add_up() -> None:
    assert acceptance([meta(2, [0]), meta(4, [2]), meta(3, [1]), meta(2, [0])])["accepted_at_depth"] == [0.5, 0.25]


def test_answers_without_counts_have_no_accept_length() -> None:
    found = acceptance([{"completion_tokens": 9}, {"completion_tokens": 1, "spec_verify_ct": 0}])
    assert found["accept_length"] is None and found["accepted_at_depth"] is None and found["rounds"] == 0


def test_speeds_and_spreads() -> None:
    prompts = [Prompt((1, 2, 3, 4), "coding"), Prompt((5, 6, 5, 6), "writing")]
    records = [
        RequestRecord(0, 10.0, 2.0, 1.0, [0.1] * 10, "", [], meta(11, [4, 4])),
        RequestRecord(1, 11.0, 3.0, 1.0, [0.4] * 5, "", [], meta(6, [0, 0, 0, 1])),
    ]
    row = measure(records, prompts)
    assert row["seconds"] == 4.0  # the first starts at 10, the last ends at 14
    assert row["output_tokens"] == 17 and row["output_tok_s"] == 4.25
    assert row["user_tok_s"] == 6.25  # median of 10 tokens in 1 s and 5 in 2 s
    assert row["round_ms"] == 500.0  # 1 s in 2 rounds, 2 s in 4
    assert row["ttft_ms_p50"] == 1000.0
    assert row["itl_ms_p50"] == 100.0 and row["itl_ms_p95"] == 400.0
    assert row["accept_length_by_category"] == {"coding": 5.0, "writing": 1.25}
    assert row["repeating_prompts"] == 1 and row["distinct_prompts"] == 2 and row["input_tokens"] == 8


def test_request_without_text_has_no_first_token_time() -> None:
    row = measure([RequestRecord(0, 0.0, 1.0, 0.0, [], "", [2], {"completion_tokens": 1})], [Prompt((1,))])
    assert row["ttft_ms_p50"] is None and row["user_tok_s"] is None and row["accept_length_by_category"] == {}
