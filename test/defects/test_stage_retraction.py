"""A micro-batch that finds the KV pool full while another holds it: without the patch its last request is aborted."""

from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "unit/managers/test_stage_retraction.py"
WAITS = "test_the_scheduler_aborts_nobody_while_another_micro_batch_holds_slots"


def test_without_the_patch_the_last_request_is_aborted(trees):
    assert list(trees.failing_without("stage-retraction", f"{UNIT}::{WAITS}")) == [WAITS]
