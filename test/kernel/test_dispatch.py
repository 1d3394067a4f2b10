"""Which implementation runs, kernels under Triton's interpreter, and what holds for every operation on a GPU."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import empty_path, walk
from sglang.kernels.draft_tree.candidates import top_candidates
from sglang.kernels.draft_tree.dispatch import VARIABLE, uses_triton
from sglang.kernels.draft_tree.kv_compact import RowMover, gather_accepted
from sglang.kernels.draft_tree.tree_build import build_tree, empty_tree
from sglang.kernels.draft_tree.tree_layout import compile_tree, empty_layout

from .lattices import random_inputs

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
INTERPRETER_SECONDS = 120


def test_argument_then_variable_then_device(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert uses_triton(CUDA) and not uses_triton(CPU)
    monkeypatch.setenv(VARIABLE, "torch")
    assert not uses_triton(CUDA)
    assert uses_triton(CUDA, "triton")
    monkeypatch.setenv(VARIABLE, "cutlass")
    with pytest.raises(ValueError, match=f"{VARIABLE} is 'cutlass'; the draft-tree operations have 'torch' and 'tri"):
        uses_triton(CPU)


def test_the_references_import_no_kernel():
    """A machine without an accelerator need not have a Triton that works."""
    code = (
        "import sys\n"
        "from sglang.kernels.draft_tree import accept_walk, candidates, kept_probs, kv_compact, stamp, tree_build\n"
        "from sglang.kernels.draft_tree import tree_layout, verify_attention\n"
        "print([name for name in sys.modules if name.startswith('sglang.kernels.draft_tree') and 'triton' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_agree_with_the_references_under_the_interpreter():
    path = [os.path.dirname(os.path.dirname(__file__)), *sys.path]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))}
    code = (
        "from kernel import parity, split_attention, verify_attention\n"
        "parity.small_cases(); split_attention.small_cases(); verify_attention.small_verifies()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INTERPRETER_SECONDS)
    assert done.returncode == 0, done.stderr


class Round:
    """Everything between two forwards on buffers that stay where they are, as a captured graph uses them."""

    BS, DEPTHS, TOPK, BUDGET, VOCAB = 3, 7, 8, 20, 500

    def __init__(self, backend: str) -> None:
        self.backend = backend
        rows, nodes = self.BS * self.DEPTHS, 1 + self.BUDGET
        self.logits = torch.zeros(rows, self.VOCAB, device="cuda")
        self.root_tokens = torch.zeros(self.BS, dtype=torch.int64, device="cuda")
        self.prefix_lens = torch.zeros(self.BS, dtype=torch.int32, device="cuda")
        self.draws = torch.zeros(self.BS, nodes, dtype=torch.int64, device="cuda")
        self.window_slots = torch.arange(self.BS * nodes, device="cuda").view(self.BS, nodes)
        self.keys = torch.zeros(self.BS * nodes, 2, 16, device="cuda")
        self.mover = RowMover([self.keys], backend=backend)
        self.tree = empty_tree(self.BS, self.BUDGET, "cuda")
        self.layout = empty_layout(self.BS, nodes, "cuda")
        self.path = empty_path(self.BS, 1 + self.DEPTHS, "cuda")
        self.flat_mask = torch.zeros(20_000, dtype=torch.bool, device="cuda")

    def set_inputs(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits.copy_(torch.randn(self.logits.shape, generator=generator))
        self.root_tokens.copy_(torch.randint(0, 9, self.root_tokens.shape, generator=generator))
        self.prefix_lens.copy_(torch.randint(0, 99, self.prefix_lens.shape, generator=generator))
        self.draws.copy_(torch.randint(0, 9, self.draws.shape, generator=generator))
        self.draws[:, 0] = self.logits.view(self.BS, self.DEPTHS, -1)[:, 0].argmax(-1)
        self.keys.copy_(torch.randn(self.keys.shape, generator=generator))
        self.flat_mask.zero_()

    def run(self) -> None:
        ids, log_probs = top_candidates(self.logits, self.TOPK, backend=self.backend)
        shape = (self.BS, self.DEPTHS, self.TOPK)
        tree = build_tree(
            self.root_tokens,
            ids.view(shape),
            log_probs.view(shape),
            self.BUDGET,
            out=self.tree,
            backend=self.backend,
        )
        compile_tree(tree.parents, tree.depths, self.prefix_lens, self.flat_mask, out=self.layout, backend=self.backend)
        path = walk(tree.tokens, tree.parents, self.draws, 1 + self.DEPTHS, out=self.path, backend=self.backend)
        self.mover.to_front(self.window_slots, path.node_ids)
        hidden = self.keys.view(self.BS, 1 + self.BUDGET, -1)
        self.hidden = gather_accepted(hidden, path.node_ids, backend=self.backend)

    def results(self) -> list[torch.Tensor]:
        return [*self.tree, *self.layout, *self.path, self.keys, self.flat_mask, self.hidden]


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_a_captured_round_computes_what_an_eager_round_does(backend):
    captured, eager = Round(backend), Round(backend)
    captured.set_inputs(0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        captured.run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.run()
    for seed in (1, 2):
        captured.set_inputs(seed)
        eager.set_inputs(seed)
        graph.replay()
        eager.run()
        assert eager.path.length.max() > 1  # something was accepted
        for found, wanted in zip(captured.results(), eager.results(), strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_nothing_is_read_back_to_the_host(backend):
    one_round = Round(backend)
    one_round.set_inputs(0)
    one_round.run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        one_round.run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_a_tree_of_one_request_does_not_depend_on_the_batch():
    inputs = random_inputs(np.random.default_rng(5), 32, 7, 8, pairs=True).to("cuda")
    batch = build_tree(*inputs[:3], 33, inputs.pair_scores)
    for row in (0, 17):
        alone = [value[row : row + 1] for value in inputs]
        single = build_tree(*alone[:3], 33, alone[3])
        for found, wanted in zip(single, batch, strict=True):
            assert torch.equal(found[0], wanted[row])
