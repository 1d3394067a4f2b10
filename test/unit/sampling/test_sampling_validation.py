"""Sampling values outside what the samplers can represent are refused where the request is parsed."""

import pytest

from sglang.srt.sampling.sampling_params import SamplingParams, get_max_seq_length


def verify(**values) -> None:
    parameters = SamplingParams(**values)
    parameters.normalize(None)
    parameters.verify(vocab_size=128)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"top_k": -1},
        {"top_k": 2**31 - 1},
        {"stop_token_ids": [0, 127]},
        {"logit_bias": {"5": -100.0, "6": 100.0}},
        {"repetition_penalty": 0.01},
    ],
)
def test_values_in_range_pass(values):
    verify(**values)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"top_k": 2**31}, "top_k must be -1 .* or between 1 and 2147483647, got 2147483648"),
        ({"stop_token_ids": [5, 128]}, "stop_token_ids contains 128; .* 0 to 127"),
        ({"stop_token_ids": [-1]}, "stop_token_ids contains -1"),
        ({"logit_bias": {"5": float("nan")}}, r"logit_bias\[5\] must be a finite 32-bit number, got nan"),
        ({"logit_bias": {"5": 1e39}}, r"logit_bias\[5\] must be a finite"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty must be between 1e-06 and 2"),
    ],
)
def test_values_out_of_range_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        verify(**values)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{4294967296}"])
def test_a_stop_pattern_that_does_not_parse_is_shown(pattern):
    with pytest.raises(ValueError, match="is not a regular expression") as caught:
        get_max_seq_length(pattern)
    assert repr(pattern) in str(caught.value)


def test_a_stop_pattern_that_parses_keeps_its_length():
    assert get_max_seq_length("ab[cd]") == 3
