"""Memory of the triton backend's graphs: rows of slots by requests, one place for all widths."""

from types import SimpleNamespace

import pytest
import torch

from sglang.kernels.draft_tree.tree_build import DraftTree, empty_tree
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.attention.verify_mask import VerifyMask
from sglang.srt.speculative.draft_tree import verify_buffers
from sglang.srt.speculative.draft_tree.round_graph import RoundGraph
from sglang.srt.speculative.draft_tree.verify import flat_mask
from sglang.srt.speculative.draft_tree.verify_buffers import SharedBuffer

CONTEXT, HEADS, SPLITS, HEAD_DIM = 100, 2, 3, 4


@pytest.fixture(autouse=True)
def algorithm(monkeypatch) -> SimpleNamespace:
    spec = SimpleNamespace(speculative_algorithm="DFLASH")
    monkeypatch.setattr(verify_buffers, "get_spec", lambda: spec)
    return spec


def backend(table: torch.Tensor, width: int, *, is_draft: bool = False, window: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        req_to_token=table, is_draft_runner=is_draft, num_draft_tokens=width, skip_prefill=False, device="cpu",
        sliding_window_size=window, use_sliding_window_kv_pool=False, dllm_attention=None,
        num_head=HEADS, max_kv_splits=SPLITS, v_head_dim=HEAD_DIM, swa_v_head_dim=None, max_context_len=CONTEXT,
        lean_total_programs=1, lean_block_m=1,
    )  # fmt: skip


def init(of: SimpleNamespace, max_bs: int) -> SimpleNamespace:
    TritonAttnBackend.init_cuda_graph_state(of, max_bs, max_bs * of.num_draft_tokens)
    return of


@pytest.fixture
def table() -> torch.Tensor:
    return torch.zeros(4, CONTEXT, dtype=torch.int32)


def test_memory_of_a_verify_does_not_grow_with_its_width(table):
    verify = init(backend(table, width=33), max_bs=8)
    assert verify.cuda_graph_kv_indices.shape == (8 * CONTEXT,)
    assert verify.cuda_graph_attn_logits.shape == (8, HEADS, SPLITS, HEAD_DIM)
    assert verify._verify_mask.buffer.numel() == 8 * 33 * (CONTEXT + 33)


def test_widths_have_their_slots_and_masks_in_one_place(table):
    wide, narrow = init(backend(table, width=33), max_bs=8), init(backend(table, width=5), max_bs=8)
    assert narrow.cuda_graph_kv_indices.data_ptr() == wide.cuda_graph_kv_indices.data_ptr()
    assert narrow._verify_mask.buffer.data_ptr() == wide._verify_mask.buffer.data_ptr()
    assert narrow._verify_mask.buffer.numel() == 8 * 5 * (CONTEXT + 5)
    assert narrow._verify_mask.fits(8) and not narrow._verify_mask.fits(9)


def test_a_larger_batch_gets_memory_of_its_own(table):
    wide, plain = init(backend(table, width=33), max_bs=8), init(backend(table, width=1), max_bs=64)
    assert plain.cuda_graph_kv_indices.numel() == 64 * CONTEXT
    assert wide.cuda_graph_kv_indices.numel() == 8 * CONTEXT


def test_target_draft_and_other_servers_share_nothing(table):
    pointers = {
        init(of, max_bs=8).cuda_graph_kv_indices.data_ptr()
        for of in (backend(table, 33), backend(table, 8, is_draft=True), backend(table.clone(), 33))
    }
    assert len(pointers) == 3


def test_other_algorithms_and_windows_keep_what_upstream_gives_them(table, algorithm):
    windowed = init(backend(table, width=5, window=16), max_bs=8)
    assert windowed.cuda_graph_kv_indices.numel() == 8 * 5 * CONTEXT
    algorithm.speculative_algorithm = "EAGLE"
    eagle = init(backend(table, width=5), max_bs=8)
    assert eagle.cuda_graph_kv_indices.numel() == 8 * 5 * CONTEXT


def triton_backend(mask: VerifyMask | None) -> TritonAttnBackend:
    backend = object.__new__(TritonAttnBackend)
    backend._verify_mask, backend.enable_deterministic = mask, False
    return backend


def mask_of(backend, host_lens: list[int], width: int) -> torch.Tensor:
    mask, _ = flat_mask(backend, torch.tensor(host_lens), width, "cpu")
    return mask


def test_triton_gets_no_more_of_the_mask_than_the_requests_can_fill(table):
    """It copies what it gets, here onto itself; other backends may read on, for the padding of a graph."""
    whole = init(backend(table, width=5), max_bs=8)._verify_mask
    triton = triton_backend(whole)
    mask = mask_of(triton, [10, 20], width=5)
    assert mask.numel() == 5 * (30 + 2 * 5) and mask.data_ptr() == whole.buffer.data_ptr()
    assert mask_of(SimpleNamespace(verify_mask=whole), [10, 20], width=5) is whole.buffer
    beyond = mask_of(triton, [10] * 9, width=5)
    assert beyond.numel() == 5 * (90 + 9 * 5) and beyond.data_ptr() != whole.buffer.data_ptr()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_captured_round_writes_what_its_kernel_reads_of_the_mask(table, monkeypatch, deterministic):
    """Two requests of the tree 0 -> 1, 0 -> 2, behind prefixes of 2 and 1."""
    graph = object.__new__(RoundGraph)
    graph.width, graph._roots, graph._figures = 3, torch.tensor([7, 8]), None
    graph.stamps, graph._tree = torch.zeros(6, dtype=torch.int64), empty_tree(2, 2, "cpu")
    graph._positions = torch.zeros(2, 3, dtype=torch.int64)
    graph._backend = triton_backend(init(backend(table, width=3), max_bs=2)._verify_mask)
    graph._backend.enable_deterministic = deterministic
    parents = torch.tensor([[-1, 0, 0]] * 2)
    tree = DraftTree(parents, parents, parents + 1, parents, torch.zeros(2, 3))
    graph._worker = SimpleNamespace(best_tree=lambda *_: tree, tree=SimpleNamespace(width=3))
    graph._forced_length = None
    monkeypatch.setattr(RoundGraph, "_draft", lambda *_: None)
    tokens, lens = torch.zeros(6, dtype=torch.int64), torch.tensor([2, 1])
    batch = SimpleNamespace(batch_size=2, seq_lens=lens, input_ids=tokens, positions=tokens.clone())
    graph._draft_and_build(None, batch)
    p = int(deterministic)
    rows = [[p, p, 1, 0, 0], [p, p, 1, 1, 0], [p, p, 1, 0, 1], [p, 1, 0, 0], [p, 1, 1, 0], [p, 1, 0, 1]]
    written = sum(rows, [])
    assert graph._backend.verify_mask.buffer.tolist()[: len(written)] == written
    assert torch.equal(graph._tree.parents, parents) and batch.positions.tolist() == graph._positions.view(-1).tolist()


def test_memory_that_was_given_out_stays_with_who_has_it():
    shared = SharedBuffer()
    small = shared.of(4, torch.int64, "cpu").fill_(7)
    large = shared.adopt(torch.ones(9))
    assert small.tolist() == [7] * 4 and large.numel() == 9
    assert shared.adopt(torch.zeros(6)).tolist() == [1] * 6
