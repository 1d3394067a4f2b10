"""Description: Give a request's row room for what a DFLASH round reserves
  A round may write two verify widths behind the committed prefix, and a row of the request table has room for one width
  and four slots. At page size 1 a request that fills its context writes into the row of another. Neither the sizes nor
  the literal "two blocks" can be set from outside.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/mem_cache/allocation_sizing.py :: get_alloc_len_per_decode
Touches: sglang/srt/mem_cache/allocation_sizing.py :: get_req_to_token_extra_context_len
Touches: sglang/srt/speculative/dflash_info_v2.py :: DFlashDraftInputV2.prepare_for_decode
Applies-To: ==0.5.23
Remove-When: upstream's row headroom covers get_alloc_reserve_per_decode at every page size, and DFLASH reserves by it
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate, Replace, assign

_SIZING = "sglang/srt/mem_cache/allocation_sizing.py"
_RESERVE = "sglang.srt.speculative.draft_tree.kv_reserve"

EDITS = (
    Decorate(_SIZING, "get_alloc_len_per_decode", "covers_draft_block", module=_RESERVE),
    Decorate(_SIZING, "get_req_to_token_extra_context_len", "row_holds_reserve", module=_RESERVE),
    Replace(
        "sglang/srt/speculative/dflash_info_v2.py",
        "DFlashDraftInputV2.prepare_for_decode",
        assign("reserve"),
        "reserve = round_reserve(block_size)",
        module=_RESERVE,
        name="round_reserve",
    ),
)
