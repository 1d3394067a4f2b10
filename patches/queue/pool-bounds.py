"""Description: Refuse what the KV pool can never hold, and end a generation before it does not fit
  With pages above one token a prompt of nearly the pool's size passes the length check but not admission: it waits for
  ever and holds up the queue. A speculative request that nearly fills the pool is aborted with HTTP 500 and loses its
  tokens, because the bound on its length forgets what a round reserves. The allocator's method, which has a result for
  "does not fit", serves every pool; its one caller knows the page and the algorithm.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/managers/scheduler.py :: Scheduler.init_req_max_new_tokens
Applies-To: ==0.5.23
Remove-When: BaseTokenToKVPoolAllocator.max_new_tokens_for_memory returns None for a prompt that admission refuses, and
  counts the speculative reserve
Last-Update: 2026-11-30
"""

from patches.transforms import Replace, call

EDITS = (
    Replace(
        "sglang/srt/managers/scheduler.py",
        "Scheduler.init_req_max_new_tokens",
        call("max_new_tokens_for_memory"),
        "new_tokens_that_fit({match}, input_len, token_capacity, self.page_size)",
        module="sglang.srt.managers.pool_bounds",
        name="new_tokens_that_fit",
    ),
)
