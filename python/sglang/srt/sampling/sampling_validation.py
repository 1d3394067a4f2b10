"""Refuses sampling parameters that pass upstream's checks and then end the model process.

Each check raises ValueError, which upstream's endpoints answer with HTTP 400 and the message.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.sampling.sampling_params import SamplingParams

_LARGEST_INT32 = 2**31 - 1  # the samplers' tensor of top_k values is int32
_LARGEST_FLOAT32 = 3.4028234663852886e38
# Below it, dividing a logit of usual size overflows float32 and the distribution is no longer a number.
_SMALLEST_REPETITION_PENALTY = 1e-6


def check_sampling_values(parameters: SamplingParams, vocab_size: int) -> None:
    """Refuse values outside the ranges that the samplers can represent.

    ``vocab_size`` counts the columns of the model's logits.
    """
    if parameters.top_k > _LARGEST_INT32:
        raise ValueError(f"top_k must be -1 (disable) or between 1 and {_LARGEST_INT32}, got {parameters.top_k}.")
    if 0 < parameters.repetition_penalty < _SMALLEST_REPETITION_PENALTY:
        raise ValueError(
            f"repetition_penalty must be between {_SMALLEST_REPETITION_PENALTY} and 2 (1 = no penalty), got "
            f"{parameters.repetition_penalty}."
        )
    for token_id in parameters.stop_token_ids or ():
        if not 0 <= token_id < vocab_size:
            raise ValueError(f"stop_token_ids contains {token_id}; the model's vocabulary is 0 to {vocab_size - 1}.")
    for token_id, bias in (parameters.logit_bias or {}).items():
        if math.isnan(bias) or abs(bias) > _LARGEST_FLOAT32:
            raise ValueError(f"logit_bias[{token_id}] must be a finite 32-bit number, got {bias}.")


def report_bad_stop_regex(measure: Callable[[str], int]) -> Callable[[str], int]:
    """Wrap upstream's measure of a stop regex: a pattern that does not parse is a ValueError that shows it."""

    @functools.wraps(measure)
    def wrapped(pattern: str) -> int:
        try:
            return measure(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"stop_regex {pattern!r} is not a regular expression: {error}.") from error

    return wrapped
