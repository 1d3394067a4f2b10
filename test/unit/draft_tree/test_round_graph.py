"""Where a whole round is one CUDA graph, and where its stages are taken one by one."""

from types import SimpleNamespace

import pytest

from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.round_graph import RoundGraph


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
    "tensor parallelism": ({}, {}, {"tp_size": 2}, 9, False),
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
