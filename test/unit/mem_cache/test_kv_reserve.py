"""KV that a DFLASH round may write ahead of the prefix, and the room for it in a row of the request table."""

import pytest

from sglang.srt.mem_cache.allocation_sizing import (
    get_alloc_len_per_decode,
    get_alloc_reserve_per_decode,
    get_req_to_token_extra_context_len,
)
from sglang.srt.runtime_context import get_context
from sglang.srt.speculative.draft_tree.kv_reserve import round_reserve

CONTEXT = 512


def serving(page_size: int, **spec):
    """Publishes the arguments of a server for the duration."""
    return get_context().override_server_args(page_size=page_size, **spec)


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("width", [2, 8, 16, 33, 256])
def test_a_row_holds_the_last_round_of_a_request_that_fills_its_context(page_size, width):
    with serving(page_size, speculative_algorithm="DFLASH", speculative_num_draft_tokens=width):
        row = CONTEXT + get_req_to_token_extra_context_len()
        written = -(-(CONTEXT - 1 + 2 * width) // page_size) * page_size
        assert written <= row


@pytest.mark.parametrize("budget, block, expected", [(1, 8, 8), (7, 8, 8), (8, 8, 9), (64, 16, 65)])
def test_a_round_reserves_the_wider_of_tree_and_draft_block(budget, block, expected):
    with serving(
        1,
        speculative_algorithm="DFLASH",
        speculative_num_draft_tokens=1 + budget,
        speculative_dflash_block_size=block,
    ):
        assert (get_alloc_len_per_decode(), get_alloc_reserve_per_decode()) == (expected, 2 * expected)
        assert round_reserve(1 + budget) == 2 * expected


@pytest.mark.parametrize("algorithm", [None, "NGRAM"])
def test_other_algorithms_keep_upstreams_sizes(algorithm):
    with serving(1, speculative_algorithm=algorithm, speculative_num_draft_tokens=8, speculative_dflash_block_size=16):
        assert get_alloc_len_per_decode() == (8 if algorithm else 1)
        assert get_req_to_token_extra_context_len() == 12
