"""The accept length of a short run: upstream's server does not know it."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "unit" / "observability" / "test_accept_length.py"


def test_without_the_patch_rounds_since_the_last_log_line_are_missing(trees):
    failing = trees.failing_without("accept-length-so-far", str(TESTS))
    assert set(failing) == {"test_before_the_first_log_line", "test_logged_and_later_rounds_weigh_alike"}
