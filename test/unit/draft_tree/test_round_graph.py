"""Where a whole round is one CUDA graph, and where its stages are taken one by one."""

from types import SimpleNamespace

import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import empty_path
from sglang.kernels.draft_tree.tree_build import DraftTree
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.round_graph import RoundGraph
from sglang.srt.speculative.draft_tree.round_measures import EmittedByWidth
from sglang.srt.speculative.draft_tree.worker import DraftTreeWorker


def runner(**changes) -> SimpleNamespace:
    fields = {
        "decode_cuda_graph_runner": SimpleNamespace(captured_req_width=9),
        "attn_backend": object.__new__(TritonAttnBackend),
        "lora_manager": None,
        "model_config": SimpleNamespace(model_is_mrope=False),
    }
    return SimpleNamespace(**{**fields, **changes})


NO_GRAPHS = {"decode_cuda_graph_runner": SimpleNamespace()}
ON_THE_HOST = {"attn_backend": SimpleNamespace()}
CASES = {
    "one GPU with triton": ({}, {}, {}, 9, True),
    "a plain step": ({}, {}, {}, 1, False),
    "no graphs of the target": (NO_GRAPHS, {}, {}, 9, False),
    "no graphs of the draft": ({}, NO_GRAPHS, {}, 9, False),
    "a target's backend that plans on the host": (ON_THE_HOST, {}, {}, 9, False),
    "a draft's backend that plans on the host": ({}, ON_THE_HOST, {}, 9, False),
    "tensor parallelism": ({}, {}, {"tp_size": 2}, 9, True),
    "pipeline stages": ({}, {}, {"pp_size": 2}, 9, False),
    "attention data parallelism": ({}, {}, {"attn_dp_enabled": True}, 9, False),
    "adapters": ({"lora_manager": object()}, {}, {}, 9, False),
    "positions of pictures": ({"model_config": SimpleNamespace(model_is_mrope=True)}, {}, {}, 9, False),
}


@pytest.mark.parametrize("case", CASES)
def test_rounds_are_captured_where_the_head_can_write_all_that_the_verify_reads(monkeypatch, case):
    target, draft, layout, width, captured = CASES[case]
    monkeypatch.setattr(RoundGraph, "__init__", lambda self, worker, width: None)
    worker = SimpleNamespace(model_runner=runner(**target), draft_model_runner=runner(**draft), lilicorr=None)
    with get_parallel().override(**{"tp_size": 1, "pp_size": 1, "attn_dp_enabled": False, **layout}):
        assert (RoundGraph.of(worker, width) is not None) is captured


def test_a_corrected_draft_takes_the_stages_one_by_one():
    worker = SimpleNamespace(model_runner=runner(), draft_model_runner=runner(), lilicorr=object())
    with get_parallel().override(tp_size=1, pp_size=1, attn_dp_enabled=False):
        assert RoundGraph.of(worker, 9) is None


# 0 -> 1 -> 3 and 0 -> 2, tokens 10 11 12 13; the KV slots of node n are 20 + n and 30 + n
PARENTS = torch.tensor([[-1, 0, 0, 1]] * 2)
TOKENS = torch.tensor([[10, 11, 12, 13]] * 2)


@pytest.fixture
def halves():
    """A RoundGraph without graphs, whose halves run as they are; what they move and append is kept."""
    graph = object.__new__(RoundGraph)
    graph.width, graph._depth = 4, 3
    graph.stamps = torch.zeros(6, dtype=torch.int64)
    graph._tree = DraftTree(TOKENS, PARENTS, PARENTS, PARENTS, torch.zeros(2, 4))
    graph._path, graph._draws = empty_path(2, 3, "cpu"), torch.zeros(2, 4, dtype=torch.int64)
    graph._slots = graph._draft_slots = torch.arange(20, 24) + torch.tensor([[0], [10]])
    graph._prefix_lens = torch.zeros(2, dtype=torch.int64)
    graph._figures = None
    kept = {}
    pool = SimpleNamespace(move_kv_cache=lambda to, source: kept.update(to=to, source=source))
    worker = object.__new__(DraftTreeWorker)
    worker.model_runner = SimpleNamespace(token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool))
    worker._block_pos_offsets, worker._target_logits_processor = torch.arange(8), None
    worker._append_target_hidden_to_draft_kv_by_loc = lambda **rows: kept.update(rows)
    graph._worker = worker
    return graph, kept


def test_the_second_half_accepts_by_the_draws_that_stand_there(halves):
    graph, kept = halves
    logits = torch.zeros(8, 20)
    logits[torch.arange(8), [11, 13, 1, 2, 12, 1, 3, 4]] = 1.0
    hidden = torch.arange(8.0)[:, None]
    output = SimpleNamespace(next_token_logits=logits, hidden_states=hidden)
    graph._draw(None, output, SimpleNamespace(batch_size=2, seq_lens=torch.tensor([5, 6])), 8)
    assert graph.draws(2).tolist() == [[11, 13, 1, 2], [12, 1, 3, 4]]
    graph.draws(2)[1] = torch.tensor([19, 1, 3, 4])  # the second request samples, and no child carries its token
    graph._commit(2, output)
    path = graph._path_of(2)
    assert path.length.tolist() == [3, 1] and path.bonus.tolist() == [2, 19]
    assert path.node_ids.tolist() == [[0, 1, 3], [0, -1, -1]]
    moved = dict(zip(kept["to"].tolist(), kept["source"].tolist(), strict=True))
    assert moved[22] == 23  # the third accepted node lay fourth
    assert kept["target_hidden"].view(2, 3)[0].tolist() == [0.0, 1.0, 3.0]
    assert kept["positions"].tolist() == [5, 6, 7, 6, 7, 8] and kept["commit_lens"].tolist() == [3, 1]
    assert (graph.stamps[3:].diff() >= 0).all() and (graph.stamps[3:] > 0).all()


def test_figures_are_of_requests_alone(halves):
    """Rows that fill up a graph hold trees too, of whatever stands in their place."""
    graph, _ = halves
    emitted = EmittedByWidth((1, 4), "cpu")
    graph._figures, graph._path_scores = emitted.no_figures(), torch.zeros(2, 4)
    graph._is_request = torch.tensor([True, False])
    graph._worker.figures = lambda path, scores: emitted.figures(path.node_ids, scores)
    graph._worker.tree = SimpleNamespace(width=4)
    graph._worker.best_tree, graph._forced_length = lambda *_: graph._tree, torch.ones(1)
    graph._roots, graph._positions = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64)
    graph._draft = lambda roots, batch: None
    graph._backend = SimpleNamespace(verify_mask=SimpleNamespace(buffer=torch.zeros(200, dtype=torch.bool)))
    batch = SimpleNamespace(
        batch_size=2,
        seq_lens=torch.tensor([5, 6]),
        input_ids=torch.zeros(8, dtype=torch.int64),
        positions=torch.zeros(8, dtype=torch.int64),
    )
    graph._draft_and_build(None, batch)
    graph._draws[:] = torch.tensor([11, 13, 1, 2])
    graph._commit(2, SimpleNamespace(hidden_states=torch.zeros(8, 1)))
    assert graph._figures.tolist() == [[1.0, 1.0, 3.0], [1.0, 1.0, 4.0]]  # path scores of zero: every node is certain
