"""How much of a request an otherwise empty KV pool can hold."""

from __future__ import annotations

from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode
from sglang.srt.runtime_context import get_spec


def new_tokens_that_fit(clipped: int | None, input_len: int, token_capacity: int, page_size: int) -> int | None:
    """The number of tokens that a request may generate before the pool ends.

    Args:
        clipped: what upstream's allocator allows; None where the prompt alone does not fit.
        input_len: tokens of the prompt.
        token_capacity: tokens that the pool holds.
        page_size: tokens of a page, which admission keeps free beside the prompt.

    Returns:
        At most ``clipped``. None for a prompt that admission never takes: it would wait for ever, at the head of the
        queue. A speculative round starts only with its whole reserve allocated, so the last one must start that far
        before the end; without this bound the request is given up when it has nearly filled the pool.
    """
    if clipped is None or input_len + page_size >= token_capacity:
        return None
    if get_spec().speculative_algorithm is None:
        return clipped
    whole_pages = token_capacity // page_size * page_size
    # When a round starts, the tokens emitted so far (at most one less than asked for) are in the pool but for the last.
    with_a_round = whole_pages - get_alloc_reserve_per_decode() - input_len + 2
    return min(clipped, max(1, with_a_round))
