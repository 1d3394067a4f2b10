"""A request that fills its context: without the patch its last round has no room in its row of the request table."""

from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "unit/mem_cache/test_kv_reserve.py"
ROW = "test_a_row_holds_the_last_round_of_a_request_that_fills_its_context"


def test_without_the_patch_the_last_round_ends_beyond_the_row(trees):
    failing = trees.failing_without("dflash-kv-reserve", f"{UNIT}::{ROW}")
    assert set(failing) == {f"{ROW}[{width}-1]" for width in (8, 16, 33, 256)}  # larger pages were sized for two rounds
