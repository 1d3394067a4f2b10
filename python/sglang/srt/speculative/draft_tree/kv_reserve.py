"""How many KV slots a round may need ahead of the committed prefix, and the room for them in a request's row.

A round writes a draft block and one slot per verified node, whichever is more. With overlap scheduling the host knows
the committed length one round late, so two rounds are reserved. A row of the request table must hold the context and
that reserve, rounded up to whole pages; upstream leaves less at page size 1, and the last round of a request that fills
its context then writes into the row of another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from sglang.srt.runtime_context import get_spec


def covers_draft_block(alloc_len: Callable[[], int]) -> Callable[[], int]:
    """Wrap `get_alloc_len_per_decode`: a small tree verifies fewer tokens than its draft block has positions."""

    @functools.wraps(alloc_len)
    def per_round() -> int:
        length = alloc_len()
        if not _is_dflash():
            return length
        return max(length, get_spec().speculative_dflash_block_size or 0)

    return per_round


def round_reserve(verified: int) -> int:
    """KV slots that each request of a decode batch has ahead of its committed prefix; `verified`: nodes of a verify.

    What upstream's `get_alloc_reserve_per_decode` says for DFLASH, without its look through all algorithms, which a
    round would wait for.
    """
    return 2 * max(verified, get_spec().speculative_dflash_block_size or 0)


def row_holds_reserve(extra_len: Callable[[], int]) -> Callable[[], int]:
    """Wrap `get_req_to_token_extra_context_len`."""

    @functools.wraps(extra_len)
    def with_reserve() -> int:
        from sglang.srt.mem_cache.allocation_sizing import get_alloc_page_size, get_alloc_reserve_per_decode

        extra = extra_len()
        if not _is_dflash():
            return extra
        return max(extra, get_alloc_reserve_per_decode() + get_alloc_page_size() - 1)

    return with_reserve


def _is_dflash() -> bool:
    return get_spec().speculative_algorithm == "DFLASH"
