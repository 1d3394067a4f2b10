"""Only a token that plain decoding found nearly as likely passes for rounding."""

from pathlib import Path

import pytest

from benchmark.sweep.load import RequestRecord
from benchmark.sweep.reference import (
    DIFFERENT,
    NEAR_TIE,
    SAME,
    Reference,
    compare,
    compare_one,
    ends_in_a_loop,
    read,
    write,
)

SURE, TIE = [(7, -0.1), (8, -3.0)], [(7, -0.70), (8, -0.75), (9, -4.0)]
REFERENCE = Reference([7, 7, 2], [SURE, TIE, [(2, -0.1), (7, -3.0)]])


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ([7, 7, 2], SAME),
        ([7, 8, 5], NEAR_TIE),  # behind the tie the texts go apart
        ([7, 9, 2], DIFFERENT),  # at a tie, but another token
        ([8, 7, 2], DIFFERENT),  # where plain decoding was sure
        ([7, 7, 6], DIFFERENT),  # a token outside of the best
        ([7, 7], DIFFERENT),
        ([7, 7, 2, 7], DIFFERENT),
        ([7] * 50, DIFFERENT),  # looping garbage
    ],
)
def test_verdict(output: list[int], verdict: str) -> None:
    assert compare_one(REFERENCE, output, tolerance=0.1)[0] == verdict


def test_without_tolerance_only_equal_text_passes() -> None:
    verdict, lead = compare_one(REFERENCE, [7, 8, 2], tolerance=0.0)
    assert verdict == DIFFERENT and lead == pytest.approx(0.05)


def test_one_different_request_marks_the_cell() -> None:
    outputs = [[7, 7, 2], [7, 8, 1], [8, 7, 2]]
    records = [RequestRecord(0, 0, 1, 0.5, [], "", output, {}) for output in outputs]
    found = compare([REFERENCE], records, tolerance=0.1)
    counts = {"text_same": 1, "text_near_tie": 1, "text_different": 1}
    assert found == {"text": "different", **counts, "text_widest_tie": 0.05, "text_loops": 0, "text_loops_plain": 0}
    assert compare([REFERENCE], records[:2], tolerance=0.1)["text"] == "same"


@pytest.mark.parametrize(
    ("output", "loops"),
    [
        ([*range(20), *[3, 4, 5] * 8], True),
        (list(range(40)), False),
        ([1, 2] * 7, False),  # too short to tell
        ([1, 2] * 10 + list(range(30)), False),  # it found its way out
    ],
)
def test_end_in_a_loop(output: list[int], loops: bool) -> None:
    assert ends_in_a_loop(output) == loops


def test_loops_behind_a_near_tie_make_a_different_text_unless_plain_decoding_loops_too() -> None:
    ways_apart = [TIE, *[SURE] * 29]
    writes = Reference([7, *range(100, 129)], ways_apart)
    also_loops = Reference([7] * 30, ways_apart)
    looping = [RequestRecord(0, 0, 1, 0.5, [], "", [8] * 30, {}) for _ in range(3)]
    found = compare([writes], looping, tolerance=0.1)
    assert found["text"] == "different" and found["text_near_tie"] == 3 and found["text_different"] == 0
    assert (found["text_loops"], found["text_loops_plain"]) == (3, 0)
    assert compare([also_loops], looping, tolerance=0.1)["text"] == "same"
    assert compare([writes], looping[:2], tolerance=0.1)["text"] == "same"


def test_file_belongs_to_one_setup(tmp_path: Path) -> None:
    path = tmp_path / "reference" / "chat.json"
    assert read(path, "a") is None
    write(path, "a", [REFERENCE])
    assert read(path, "a") == [REFERENCE] and read(path, "b") is None
