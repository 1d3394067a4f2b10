"""Greedy outputs against plain decoding: equal, apart by rounding, or different.

The plain server answers every prompt once with the log-probabilities of its best tokens. Where another output leaves
the plain one, its token must be nearly as likely there as the plain one's: then rounding explains it, since another
batch or another kernel adds the same numbers in another order. Any other token makes a different text, however fast it
came. Behind a near tie the texts go their own ways, so there only this is compared: how many of them end in a loop,
which is what broken decoding looks like, and fast. Small models loop by themselves, so plain decoding sets the measure.
"""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import requests

from .load import RequestRecord
from .prompts import Prompt, repeats_itself

ALTERNATIVES = 5
# Loops beyond plain decoding's that chance may bring: this many outputs, or this share of them.
SPARE_LOOPS, SPARE_SHARE = 2, 0.1
SHORTEST_LOOPING = 16
SAME, NEAR_TIE, DIFFERENT = "same", "near_tie", "different"


@dataclass(frozen=True)
class Reference:
    """Plain decoding's answer to one prompt.

    ``alternatives[i]`` are pairs of token id and log-probability in nats, best first, at output position ``i``.
    """

    output_ids: list[int]
    alternatives: list[list[tuple[int, float]]]


def fetch(url: str, prompts: Sequence[Prompt], sampling_params: dict[str, Any], workers: int = 8) -> list[Reference]:
    """Asks the server at ``url`` for the reference of every prompt; raises requests.RequestException."""

    def ask(prompt: Prompt) -> Reference:
        body = {
            "input_ids": prompt.input_ids,
            "sampling_params": sampling_params,
            "return_logprob": True,
            "top_logprobs_num": ALTERNATIVES,
        }
        response = requests.post(f"{url}/generate", json=body, timeout=3600)
        response.raise_for_status()
        answer = response.json()
        best = answer["meta_info"]["output_top_logprobs"]
        return Reference(answer["output_ids"], [[(token, value) for value, token, _ in place] for place in best])

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(ask, prompts))


def compare_one(reference: Reference, output_ids: Sequence[int], tolerance: float) -> tuple[str, float]:
    """Returns SAME, NEAR_TIE or DIFFERENT for one output, and by how many nats plain decoding preferred its own token.

    That lead is 0 for equal outputs, and infinite for a token that is not among plain decoding's best.
    """
    expected = reference.output_ids
    for place in range(max(len(expected), len(output_ids))):
        if place >= len(expected) or place >= len(output_ids):
            return DIFFERENT, inf  # one goes on where the other ends, without a token that ended it
        if expected[place] == output_ids[place]:
            continue
        likely = dict(reference.alternatives[place])
        lead = max(likely.values()) - likely.get(output_ids[place], -inf)
        return (NEAR_TIE if lead <= tolerance else DIFFERENT), lead
    return SAME, 0.0


def compare(references: Sequence[Reference], records: Sequence[RequestRecord], tolerance: float) -> dict[str, Any]:
    """Returns the verdict, ``same`` or ``different``, and what it rests on.

    Counts of outputs that are the same, near ties and different, the widest lead in nats that passed as a tie, and how
    many outputs end in a loop, here and in plain decoding's answers to the same prompts.
    """
    found = [compare_one(references[record.prompt], record.output_ids, tolerance) for record in records]
    verdicts = Counter(verdict for verdict, _ in found)
    counts = {f"text_{verdict}": verdicts[verdict] for verdict in (SAME, NEAR_TIE, DIFFERENT)}
    loops = sum(ends_in_a_loop(record.output_ids) for record in records)
    plain = sum(ends_in_a_loop(references[record.prompt].output_ids) for record in records)
    too_many = loops > plain + max(SPARE_LOOPS, SPARE_SHARE * len(records))
    widest = max((lead for verdict, lead in found if verdict == NEAR_TIE), default=0.0)
    return {
        "text": DIFFERENT if verdicts[DIFFERENT] or too_many else SAME,
        **counts,
        "text_widest_tie": round(widest, 4),
        "text_loops": loops,
        "text_loops_plain": plain,
    }


def ends_in_a_loop(output_ids: Sequence[int]) -> bool:
    """True if the second half of an output is one text, twice or more over."""
    return len(output_ids) >= SHORTEST_LOOPING and repeats_itself(output_ids[len(output_ids) // 2 :])


def write(path: Path, digest: str, references: Sequence[Reference]) -> None:
    """Writes ``references`` for the setup ``digest``; the file is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"digest": digest, "references": [asdict(reference) for reference in references]}))
    temporary.replace(path)


def read(path: Path, digest: str) -> list[Reference] | None:
    """Returns what ``write`` wrote for ``digest``; None if it is absent or of another setup."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    if content["digest"] != digest:
        return None
    return [
        Reference(entry["output_ids"], [[tuple(pair) for pair in place] for place in entry["alternatives"]])
        for entry in content["references"]
    ]
