"""A drafter for tests that proposes what it is told to, so that a random pair accepts any number of tokens.

Loaded into the server through upstream's plugin entry points (`scripted_draft_environment`), it replaces the draft's
proposals alone: draft forward, verify and accept run as ever. The script is a JSON file of `[prompt, output]` pairs of
token ids. A request whose prompt is in it gets the tokens that follow its output so far; at a depth that changes from
round to round they go wrong, so every accept length occurs. All other requests keep the draft's own proposals. In a
tree the script's tokens stand among the draft's other candidates, at one depth as the second best. With EVERY_WIDTH in
the environment, a server that chooses its verify widths wants any of them after each round. Free KV slots start out
poisoned.
"""

import functools
import json
import os
import random
from pathlib import Path

SCRIPT = "SCRIPTED_DRAFT"
EVERY_WIDTH = "SCRIPTED_DRAFT_EVERY_WIDTH"
NAME = "scripted-draft"
_POISON = 1e4


def scripted_draft_environment(folder: Path, script: Path) -> dict[str, str]:
    """Environment that makes a server load this drafter. `folder` gets the metadata of the entry point."""
    info = folder / "scripted_draft-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-draft\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{NAME} = {__name__}:load\n")
    return {"PYTHONPATH": python_path(folder), SCRIPT: str(script)}


def python_path(*folders: Path) -> str:
    """PYTHONPATH of a server that can import `folders` and this harness, which requests name classes of."""
    paths = [*map(str, folders), str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(paths)


def write_script(path: Path, runs: list[tuple[list[int], list[int]]]) -> None:
    """Write the pairs of prompt and output; a running server reads them with its next round."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(runs))
    temporary.replace(path)


def load() -> None:
    """Entry point: put the script in the place of the draft's proposals."""
    from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2

    forward = DFlashWorkerV2.forward_batch_generation
    propose = DFlashWorkerV2._greedy_sample_from_vocab_parallel_head

    @functools.wraps(forward)
    def forward_batch_generation(self, batch, *args, **kwargs):
        self._scripted_batch = batch
        return forward(self, batch, *args, **kwargs)

    @functools.wraps(propose)
    def propose_from_script(self, *args, **kwargs):
        proposals = propose(self, *args, **kwargs)
        batch = self._scripted_batch
        drafts = proposals.view(len(batch.reqs), -1)
        # Not the requests' own output: with overlap scheduling the host is a round behind.
        for row, req, prefix in zip(drafts, batch.reqs, batch.seq_lens.tolist(), strict=True):
            _follow(row, req, prefix + 1 - len(req.origin_input_ids), _read(os.environ[SCRIPT]))
        return proposals

    DFlashWorkerV2.forward_batch_generation = forward_batch_generation
    DFlashWorkerV2._greedy_sample_from_vocab_parallel_head = propose_from_script
    DFlashWorkerV2._maybe_build_draft_sampler = lambda self: None  # it would propose inside the draft's CUDA graph
    _load_for_trees()
    if EVERY_WIDTH in os.environ:
        _want_every_width()
    _poison_free_slots()


def _want_every_width() -> None:
    from sglang.srt.speculative.draft_tree.width_controller import WidthController

    choices = random.Random(1)  # in no order that could keep step with the lengths of requests

    def after_round(self, bs: int, width: int) -> int:
        return choices.choice(self.widths)

    WidthController.after_round = after_round


def _poison_free_slots() -> None:
    """Fill the KV pools with large numbers, so that a token which attends to a slot of nobody's comes out wrong."""
    from sglang.srt.mem_cache import memory_pool

    def poisoning(initialize):
        @functools.wraps(initialize)
        def poisoned(self, *args, **kwargs):
            initialize(self, *args, **kwargs)
            for buffers in ("k_buffer", "v_buffer", "kv_buffer"):
                for buffer in getattr(self, buffers, ()):
                    buffer.fill_(_POISON)

        return poisoned

    for pool in (memory_pool.MHATokenToKVPool, memory_pool.MLATokenToKVPool):
        pool.__init__ = poisoning(pool.__init__)


def _load_for_trees() -> None:
    try:
        from sglang.srt.speculative.draft_tree import lattice
        from sglang.srt.speculative.draft_tree.round_graph import RoundGraph
        from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker
    except ImportError:  # the pristine release
        return
    # Candidates are computed inside CUDA graphs, which replay no Python: what to propose waits in tensors.
    wanted = _Wanted()
    for candidates in (lattice.HeadCandidates, lattice.SelectorCandidates):
        candidates.__call__ = _then(candidates.__call__, wanted.place)
    DraftTreeWorker.draft = _first(DraftTreeWorker.draft, wanted.read)
    RoundGraph.verify = _first(RoundGraph.verify, wanted.read)


def _first(method, read):
    @functools.wraps(method)
    def reading(self, batch, *args, **kwargs):
        read(batch)
        return method(self, batch, *args, **kwargs)

    return reading


def _then(method, place):
    @functools.wraps(method)
    def placing(self, *args, **kwargs):
        return place(method(self, *args, **kwargs))

    return placing


class _Wanted:
    """What the script wants to stand in the lattice of a round: a token per row and depth, or -1."""

    _ROWS, _NONE = 512, -1

    def __init__(self) -> None:
        self._tokens = self._second_best_at = self._batch = None

    def read(self, batch) -> None:
        """Before a round, on the host: the script's tokens of each request, and where they are only second best."""
        import torch

        if self._tokens is None:  # the first lattice makes the tensors; without graphs that is one of this round
            self._batch = batch
            return
        depths, script = self._tokens.shape[1], _read(os.environ[SCRIPT])
        tokens = torch.full((len(batch.reqs), depths), self._NONE)
        second = torch.full((len(batch.reqs),), self._NONE)
        for row, (req, prefix) in enumerate(zip(batch.reqs, batch.seq_lens.tolist(), strict=True)):
            if _follow(tokens[row], req, prefix + 1 - len(req.origin_input_ids), script):
                second[row] = req.decode_batch_idx % (depths + 1)
        self._tokens[: len(tokens)].copy_(tokens)
        self._second_best_at[: len(tokens)].copy_(second)

    def place(self, lattice):
        """`lattice` with the wanted tokens: second best at one depth, best at all others.

        Scores become the same at every depth, so that deep paths have a place in small trees.
        """
        import torch

        candidates, device = lattice.token_ids, lattice.token_ids.device
        rows, depths, topk = candidates.shape
        if self._tokens is None:
            with torch.inference_mode(False):  # `read` writes to them outside of it
                self._tokens = torch.full((self._ROWS, depths), self._NONE, device=device)
                self._second_best_at = torch.full((self._ROWS,), self._NONE, device=device)
            if self._batch is not None:
                self.read(self._batch)
        wanted, second = self._tokens[:rows, :, None], self._second_best_at[:rows, None, None]
        known = second != self._NONE
        tokens = torch.where(wanted == self._NONE, candidates[:, :, :1], wanted)
        at_depth = torch.arange(depths, device=device)[None, :, None]
        rank = (at_depth == second).long().clamp(max=topk - 1)
        placed = torch.where(candidates == tokens, candidates.gather(2, rank), candidates).scatter(2, rank, tokens)
        falling = -0.5 * torch.arange(topk, device=device)
        return lattice._replace(
            token_ids=torch.where(known, placed, candidates), scores=torch.where(known, falling, lattice.scores)
        )


def _read(path: str) -> dict[tuple[int, ...], list[int]]:
    return _parse(path, os.stat(path).st_mtime_ns) if os.path.exists(path) else {}


@functools.lru_cache(maxsize=1)
def _parse(path: str, _version: int) -> dict[tuple[int, ...], list[int]]:
    return {tuple(prompt): output for prompt, output in json.loads(Path(path).read_text())}


def _follow(row, req, done: int, script: dict[tuple[int, ...], list[int]]) -> bool:
    """Write what follows the `done` tokens that `req` has emitted into its proposals `row`, wrong from one depth on.

    Returns whether the script knows the request.
    """
    import torch

    output = script.get(tuple(req.origin_input_ids_unpadded))  # where a picture is, as the request had it
    if output is None:
        return False
    known = output[done : done + len(row)]
    wrong_from = (3 + req.decode_batch_idx) % (len(row) + 1)
    known = [token if depth < wrong_from else (token + 1) % 100 for depth, token in enumerate(known)]
    row[: len(known)] = torch.tensor(known, dtype=row.dtype)
    return True
