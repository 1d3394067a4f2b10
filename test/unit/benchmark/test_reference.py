"""Only a token that plain decoding found nearly as likely passes for rounding."""

from pathlib import Path

import pytest

from benchmark.sweep.load import RequestRecord
from benchmark.sweep.reference import DIFFERENT, NEAR_TIE, SAME, Reference, compare, compare_one, read, write

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
    assert found == {"text": "different", **counts, "text_widest_tie": 0.05}
    assert compare([REFERENCE], records[:2], tolerance=0.1)["text"] == "same"


def test_file_belongs_to_one_setup(tmp_path: Path) -> None:
    path = tmp_path / "reference" / "chat.json"
    assert read(path, "a") is None
    write(path, "a", [REFERENCE])
    assert read(path, "a") == [REFERENCE] and read(path, "b") is None
