"""Requests about as large as the KV pool: without the patch some wait for ever, others are given up near their end."""

from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "unit/managers/test_pool_bounds.py"
WAITING = "test_every_prompt_is_admitted_or_refused_and_none_waits_for_ever_r19"
GIVEN_UP = "test_the_last_round_of_a_speculative_request_finds_its_reserve_r19"


def test_without_the_patch_prompts_wait_for_ever_and_rounds_lack_their_reserve(trees):
    failing = trees.failing_without("pool-bounds", f"{UNIT}::{WAITING}", f"{UNIT}::{GIVEN_UP}")
    waiting = {f"{WAITING}[{algorithm}-{page}]" for algorithm in (None, "DFLASH") for page in (16, 64)}
    assert set(failing) == waiting | {f"{GIVEN_UP}[1]"}  # larger pages leave a round its room by rounding
