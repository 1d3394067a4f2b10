"""One random target served twice, plainly and with DFLASH and a scripted drafter: both must say the same.

The drafter is right to a depth that changes from round to round, so drafts are accepted and rejected at every depth.
"""

import random

from .scripted_draft import EVERY_WIDTH, python_path, scripted_draft_environment, write_script
from .server import accept_length

TOKENS = 48
# What changes where keys and values lie, but no token: the plain server does without, and many tests share it.
LAYOUT = (
    "page_size",
    "tp_size",
    "ep_size",
    "pp_size",
    "pp_max_micro_batch_size",
    "chunked_prefill_size",
    "max_total_tokens",
    "speculative_draft_window_size",
    "speculative_dflash_tree_budget",
    "speculative_dflash_tree_topk",
    "speculative_dflash_widths",
    "enable_metrics",
    "decode_log_interval",
)
# Upstream's own ledger of pages, off by default: after every step each page has one owner or is free, and requests hold
# no more than they were given. A violation ends the server, as a page lost does when the server falls idle.
LEDGER = {"SGLANG_CHECK_KV_PAGE_INVARIANTS": "1", "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}


LEAST_ACCEPTED = 1.5
LEAST_ACCEPTED_WITH_PLAIN_ROUNDS = 1.2


class PlainAndDflash:
    """A plain and a DFLASH server of the same target."""

    def __init__(self, shared_servers, pair, folder, *, env: dict[str, str] | None = None, **flags):
        """``pair``: a TinyPair. ``flags``: both servers', LAYOUT aside. ``env``: of DFLASH alone."""
        flags = {"dtype": "float32", "max_running_requests": 64, **flags}
        self._script = folder / "script.json"
        flags["env"] = {**scripted_draft_environment(folder / "plugin", self._script), **LEDGER, **(env or {})}
        self._servers, self._pair, self._flags = shared_servers, pair, flags

    @property
    def every_width(self) -> bool:
        """Whether some rounds decode plainly or verify few nodes, whatever the drafts are worth."""
        return EVERY_WIDTH in self._flags["env"] and self._flags.get("speculative_dflash_tree_budget") == "auto"

    @property
    def least_accepted(self) -> float:
        return LEAST_ACCEPTED_WITH_PLAIN_ROUNDS if self.every_width else LEAST_ACCEPTED

    @property
    def plain(self):
        flags = {name: value for name, value in self._flags.items() if name not in (*LAYOUT, "env")}
        # The same for every folder, so that the server is shared; requests may name the harness's logit processors.
        return self._servers.get(self._pair.target, env={"PYTHONPATH": python_path()}, **flags)

    @property
    def dflash(self):
        return self._servers.get(self._pair.target, self._pair.draft, **self._flags)

    @property
    def retracting(self):
        """A DFLASH server that throws requests out every third step."""
        forced = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "3"}
        flags = {**self._flags, "env": {**self._flags["env"], **forced}}
        return self._servers.get(self._pair.target, self._pair.draft, **flags)

    def run(self, requests: list[dict], *, drafts: list[list[int]] | None = None) -> tuple[list, list]:
        """Answers of plain decoding, one request at a time, and of DFLASH, all at once.

        ``drafts`` are the outputs that the drafter follows, one a request, where plain decoding's end too early: only
        with right drafts behind its last token does a request end inside an accepted block.
        """
        requests = [{"max_new_tokens": TOKENS, **request} for request in requests]
        plain = [self.plain.generate(**request) for request in requests]
        drafts = drafts or [answer["output_ids"] for answer in plain]
        self.propose([(request["input_ids"], draft) for request, draft in zip(requests, drafts, strict=True)])
        return plain, self.dflash.generate_concurrently(requests)

    def propose(self, runs: list[tuple[list[int], list[int]]]) -> None:
        write_script(self._script, runs)


def prompts(count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[1, *(rng.randrange(4, 128) for _ in range(rng.randrange(3, 20)))] for _ in range(count)]


def assert_same_tokens(plain: list, dflash: list, least: float = LEAST_ACCEPTED) -> None:
    """``least``: tokens a round that the drafts must have brought somewhere, or the script was not followed."""
    assert [answer["output_ids"] for answer in dflash] == [answer["output_ids"] for answer in plain]
    drafted = [answer for answer in dflash if len(answer["output_ids"]) > 10]
    assert not drafted or max(accept_length(answer["meta_info"]) for answer in drafted) > least
