"""R10: a target's output head that drafts cannot use; upstream finds out with the first request."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "unit" / "dflash" / "test_borrowed_head.py"


def test_without_the_patch_the_worker_does_not_ask(trees):
    failing = trees.failing_without("dflash-borrowed-head", str(TESTS))
    assert set(failing) == {"test_the_worker_asks_before_it_allocates_anything_r10"}
