"""What upstream's scheduler lets a request generate, in pools smaller than the context."""

from types import SimpleNamespace

import pytest

from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.mem_cache.prefill_budget import PrefillBudget
from sglang.srt.runtime_context import get_context

CAPACITY = 448
VERIFY_WIDTH = 4


def bounded(prompt: int, asked: int, page_size: int) -> SimpleNamespace:
    """The request after the scheduler bounded it: ``new_tokens``, and ``refused`` with a message or None."""
    allocator = SimpleNamespace(page_size=page_size)
    allocator.max_new_tokens_for_memory = BaseTokenToKVPoolAllocator.max_new_tokens_for_memory.__get__(allocator)
    scheduler = SimpleNamespace(
        max_new_tokens_limit=None, max_req_len=CAPACITY - 1, max_total_num_tokens=CAPACITY, page_size=page_size,
        kv_shard_widening=1, token_to_kv_pool_allocator=allocator, sliding_window_size=None, chunked_prefill_size=None,
    )  # fmt: skip
    refusals = []
    request = SimpleNamespace(
        rid="r", origin_input_ids=[5] * prompt, set_finish_with_abort=refusals.append,
        sampling_params=SimpleNamespace(max_new_tokens=asked, min_new_tokens=0),
    )  # fmt: skip
    Scheduler.init_req_max_new_tokens(scheduler, request)
    return SimpleNamespace(new_tokens=request.sampling_params.max_new_tokens, refused=(refusals or [None])[0])


def serving(algorithm: str | None, page_size: int):
    """Publishes the arguments of a server for the duration."""
    return get_context().override_server_args(
        page_size=page_size, speculative_algorithm=algorithm, speculative_num_draft_tokens=VERIFY_WIDTH
    )


def is_admitted(prompt: int, new_tokens: int, page_size: int) -> bool:
    """Whether upstream's admission takes the request when nothing else is in the pool."""
    allocator = SimpleNamespace(page_size=page_size, available_size=lambda: CAPACITY)
    cache = SimpleNamespace(supports_mamba=lambda: False, evictable_size=lambda: 0)
    admitted, _ = PrefillBudget(allocator, cache).check_prefill(
        extend_input_len=prompt, total_tokens=prompt + new_tokens + page_size, max_new_tokens=new_tokens,
        input_tokens=prompt, swa_host_hit_length=0, chunk_limit=None,
    )  # fmt: skip
    return admitted


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("algorithm", [None, "DFLASH"])
def test_every_prompt_is_admitted_or_refused_and_none_waits_for_ever_r19(page_size, algorithm):
    with serving(algorithm, page_size):
        for prompt in range(1, CAPACITY - 1):
            outcome = bounded(prompt, asked=10_000, page_size=page_size)
            if outcome.refused:
                assert str(prompt) in outcome.refused and not is_admitted(prompt, 0, page_size)
            else:
                assert is_admitted(prompt, outcome.new_tokens, page_size), prompt


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_the_last_round_of_a_speculative_request_finds_its_reserve_r19(page_size):
    """A round takes whole pages for what is committed and twice its width; the last starts one token before the end."""
    with serving("DFLASH", page_size):
        for prompt in range(1, CAPACITY - 2 * page_size):
            new_tokens = bounded(prompt, asked=10_000, page_size=page_size).new_tokens
            if new_tokens > 1:
                committed = prompt + new_tokens - 2
                assert -(-(committed + 2 * VERIFY_WIDTH) // page_size) * page_size <= CAPACITY, prompt


@pytest.mark.parametrize(
    "algorithm, page_size, asked, fits",
    [("DFLASH", 16, 100, 100), ("DFLASH", 1, 421, 421), ("DFLASH", 1, 423, 422), (None, 1, 425, 425)],
)
def test_a_prompt_of_20_tokens_may_generate(algorithm, page_size, asked, fits):
    with serving(algorithm, page_size):
        assert bounded(20, asked, page_size).new_tokens == fits
