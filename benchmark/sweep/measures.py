"""The numbers of a row, from the records of its requests; the package docstring has the conventions."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .load import RequestRecord
from .prompts import Prompt, repeats_itself

PERCENTILES = (50, 95, 99)


def measure(records: Sequence[RequestRecord], prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Returns the measures of one cell; all ``records`` are of requests that succeeded.

    Times are in milliseconds. ``accept_*`` and ``round_ms`` are None where no answer counts rounds.
    """
    tokens = [record.meta["completion_tokens"] for record in records]
    begin = min(record.start for record in records)
    seconds = max(record.start + record.latency for record in records) - begin
    return {
        "requests": len(records),
        "distinct_prompts": len({record.prompt for record in records}),
        "repeating_prompts": sum(repeats_itself(prompts[index].input_ids) for index in {r.prompt for r in records}),
        "input_tokens": sum(len(prompts[record.prompt].input_ids) for record in records),
        "output_tokens": sum(tokens),
        "seconds": round(seconds, 4),
        "output_tok_s": round(sum(tokens) / seconds, 3),
        "user_tok_s": _median(
            (count - 1) / (record.latency - record.ttft)
            for record, count in zip(records, tokens, strict=True)
            if record.ttft and count > 1 and record.latency > record.ttft
        ),
        **_spread("ttft_ms", [1000 * record.ttft for record in records if record.ttft]),
        **_spread("itl_ms", [1000 * gap for record in records for gap in record.itl]),
        **acceptance([record.meta for record in records]),
        "accept_length_by_category": _by_category(records, prompts),
        "round_ms": _median(
            1000 * (record.latency - record.ttft) / record.meta["spec_verify_ct"]
            for record in records
            if record.ttft and record.meta.get("spec_verify_ct")
        ),
    }


def acceptance(metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns accept length and its parts from the ``meta_info`` of requests.

    ``accepted_at_depth[d]`` is the share of rounds that accepted a draft at depth ``d + 1``. Requests that count no
    round, such as those of one token, add nothing.
    """
    counted = [meta for meta in metas if meta.get("spec_verify_ct")]
    rounds = sum(meta["spec_verify_ct"] for meta in counted)
    accepted = sum(meta["spec_num_correct_drafts"] for meta in counted)
    tokens = sum(meta["completion_tokens"] for meta in counted)
    return {
        "rounds": rounds,
        "accept_length": round(1 + accepted / rounds, 4) if rounds else None,
        "tokens_per_round_upstream": round(tokens / rounds, 4) if rounds else None,
        "accepted_at_depth": _at_depth([meta.get("spec_correct_drafts_histogram") or [] for meta in counted]),
    }


def _at_depth(histograms: Sequence[Sequence[int]]) -> list[float] | None:
    """``histograms[request][n]`` rounds accepted ``n`` drafts."""
    depth = max(map(len, histograms), default=0)
    if not depth:
        return None
    counts = np.sum([[*histogram, *[0] * (depth - len(histogram))] for histogram in histograms], axis=0)
    at_least = counts[::-1].cumsum()[::-1]
    return [round(float(share), 4) for share in at_least[1:] / at_least[0]]


def _by_category(records: Sequence[RequestRecord], prompts: Sequence[Prompt]) -> dict[str, float]:
    metas: dict[str, list[dict]] = {}
    for record in records:
        if category := prompts[record.prompt].category:
            metas.setdefault(category, []).append(record.meta)
    lengths = {category: acceptance(group)["accept_length"] for category, group in sorted(metas.items())}
    return {category: length for category, length in lengths.items() if length is not None}


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {f"{name}_p{percentile}": None for percentile in PERCENTILES}
    found = np.percentile(values, PERCENTILES)
    return {
        f"{name}_p{percentile}": round(float(value), 4) for percentile, value in zip(PERCENTILES, found, strict=True)
    }


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return round(float(np.median(numbers)), 4) if numbers else None
