"""Each kernel against its torch reference. Results of the kernel go to tensors that hold a sentinel before, with one
request's worth of it behind them.

`small_cases` runs under Triton's interpreter on a CPU; the tests marked `gpu` run the same functions on a GPU.
"""

import numpy as np
import torch

from sglang.kernels.draft_tree.accept_walk import empty_path, walk
from sglang.kernels.draft_tree.candidates import top_candidates
from sglang.kernels.draft_tree.kept_probs import kept_probs
from sglang.kernels.draft_tree.kv_compact import RowMover, accepted_slot_moves, gather_accepted, move_rows
from sglang.kernels.draft_tree.tree_build import build_tree, empty_tree
from sglang.kernels.draft_tree.tree_layout import compile_tree, empty_layout

from .lattices import random_inputs, random_parents

SENTINEL = 77
GUARD_CELLS = 4096  # behind the flat mask


def compare_tree_build(device: str, bs: int, depths: int, topk: int, budget: int, *, pairs: bool, levels: int | None):
    rng = np.random.default_rng([bs, depths, topk, budget, pairs])
    inputs = random_inputs(rng, bs, depths, topk, pairs=pairs, levels=levels)
    expected = build_tree(*inputs[:3], budget, inputs.pair_scores, backend="torch")
    out, behind = _guarded(empty_tree(bs + 1, budget, device))
    inputs = inputs.to(device)
    build_tree(*inputs[:3], budget, inputs.pair_scores, out=out, backend="triton")
    _assert_equal(expected, out)
    _assert_untouched(behind)


def compare_tree_layout(device: str, bs: int, nodes: int, *, write_prefix: bool, dtype: torch.dtype, spare: int):
    """`spare` cells more than the trees need in the flat mask, or fewer if it is negative."""
    rng = np.random.default_rng([bs, nodes, write_prefix])
    parents, depths = random_parents(rng, bs, nodes)
    prefix_lens = torch.from_numpy(rng.choice([0, 1, 5, 40, 1300], bs))
    cells = max(0, int(nodes * (prefix_lens + nodes).sum()) + spare)
    # Both values stand in the buffer before, so that a cell that must not be written shows either way.
    before = torch.from_numpy(rng.integers(0, 2, cells + GUARD_CELLS)).to(dtype)
    expected_buffer, buffer = before.clone(), before.to(device, copy=True)
    expected_flat, flat = expected_buffer[:cells], buffer[:cells]
    options = {"write_prefix": write_prefix}
    expected = compile_tree(parents, depths, prefix_lens, expected_flat, **options, backend="torch")
    out, behind = _guarded(empty_layout(bs + 1, nodes, device))
    on_device = (parents.to(device), depths.to(device), prefix_lens.to(device, torch.int32))
    compile_tree(*on_device, flat, **options, out=out, backend="triton")
    _assert_equal(expected, out)
    _assert_untouched(behind)
    assert torch.equal(buffer.cpu(), expected_buffer), "flat mask"
    _assert_equal(expected, compile_tree(*on_device, backend="triton"))


def compare_walk(device: str, bs: int, nodes: int, depth: int):
    rng = np.random.default_rng([bs, nodes, depth])
    parents, _ = random_parents(rng, bs, nodes)
    tokens, draws = torch.from_numpy(rng.integers(0, 3, (2, bs, nodes)))
    expected = walk(tokens, parents, draws, depth, backend="torch")
    out, behind = _guarded(empty_path(bs + 1, depth, device))
    walk(tokens.to(device), parents.to(device), draws.to(device), depth, out=out, backend="triton")
    _assert_equal(expected, out)
    _assert_untouched(behind)


def compare_move_rows(device: str, bs: int, nodes: int, depth: int):
    rng = np.random.default_rng([bs, nodes, depth])
    slots = bs * nodes + 5
    window_slots = torch.from_numpy(rng.permutation(slots)[: bs * nodes].reshape(bs, nodes))
    node_ids = torch.full((bs, depth), -1)
    for row in range(bs):
        length = rng.integers(1, depth + 1)
        node_ids[row, 1:length] = torch.from_numpy(np.sort(rng.permutation(nodes - 1)[: length - 1]) + 1)
        node_ids[row, 0] = 0
    moves = accepted_slot_moves(window_slots, node_ids)
    wide = torch.from_numpy(rng.integers(0, 255, (slots, 2, 3 * 1024))).to(torch.uint8)
    # Rows of whole words, wider than one program's share, and of odd bytes; and rows with a gap behind each.
    for shapes in ([wide, wide[:, :1, 1024:1088]], [wide[:, 0, :37], wide[:, 1, 5:6]]):
        expected = [buffer.clone(memory_format=torch.contiguous_format) for buffer in shapes]
        moved = [buffer.to(device, copy=True) for buffer in expected]
        gapped = wide.to(device, copy=True)[:, 0, :64]
        expected.append(wide[:, 0, :64].clone())
        move_rows(expected, *moves)
        # A graph keeps the slots of the widest round and replays with some of their columns.
        columns = torch.nn.functional.pad(window_slots, (0, 3)).to(device)[:, :nodes]
        RowMover([*moved, gapped], backend="triton").to_front(columns, node_ids.to(device))
        _assert_equal(expected, [*moved, gapped])


def compare_gather(device: str, bs: int, nodes: int, depth: int, row: tuple[int, ...], dtype: torch.dtype):
    rng = np.random.default_rng([bs, nodes, depth])
    hidden = torch.from_numpy(rng.normal(size=(bs, nodes, *row))).to(dtype)
    node_ids = torch.from_numpy(rng.integers(-1, nodes, (bs, depth + 2)))
    expected = gather_accepted(hidden, node_ids, depth, backend="torch")
    found = gather_accepted(hidden.to(device), node_ids.to(device), depth, backend="triton")
    _assert_equal([expected], [found])


def compare_candidates(device: str, rows: int, vocab: int, topk: int, dtype: torch.dtype, *, ties: bool):
    rng = np.random.default_rng([rows, vocab, topk])
    logits = rng.integers(-9, 10, (rows, vocab)) if ties else rng.normal(0.0, 4.0, (rows, vocab))
    logits = torch.from_numpy(logits).to(dtype)
    logits[::2, : vocab - topk] = -torch.inf  # as a grammar leaves them: whole parts of the vocabulary are out
    expected_ids, expected_log_probs = top_candidates(logits, topk, backend="torch")
    ids, log_probs = top_candidates(logits.to(device), topk, backend="triton")
    assert torch.equal(ids.cpu(), expected_ids), "ids"
    torch.testing.assert_close(log_probs.cpu(), expected_log_probs, rtol=1e-5, atol=1e-5)


def compare_kept_probs(device: str, rows: int, vocab: int, dtype: torch.dtype, *, ties: bool):
    """Rows of every filter and of all together. With `ties` sums are exact: multiples of a power of two, many equal."""
    rng = np.random.default_rng([rows, vocab])
    if ties:
        shares = rng.multinomial(256, np.full(vocab, 1 / vocab), size=rows) / 256
    else:
        shares = rng.dirichlet(np.full(vocab, 0.02), size=rows)
    probs = torch.from_numpy(shares).to(dtype)
    top_ks = torch.from_numpy(rng.choice([1, 2, 5, vocab // 2 + 1, 1 << 30], rows)).to(torch.int32)
    # Not the sum of any probabilities, but for the first of them, which the ties meet exactly.
    top_ps = torch.from_numpy(rng.choice([0.0, 0.25, 0.5] if ties else [0.1234567, 0.7654321, 0.95], rows)).float()
    top_ps[::3] = 1.0
    min_ps = torch.from_numpy(rng.choice([0.0, 0.0, 0.05, 0.6], rows)).float()
    expected = kept_probs(probs, top_ks, top_ps, min_ps, backend="torch")
    spaced = torch.nn.functional.pad(probs, (0, 5)).to(device)[:, :vocab]
    found = kept_probs(spaced, top_ks.to(device), top_ps.to(device), min_ps.to(device), backend="triton")
    _assert_equal([expected], [found])


def small_cases() -> None:
    """Every kernel at a few small sizes on the CPU, for Triton's interpreter."""
    for budget, topk, pairs in ((1, 1, False), (7, 3, False), (7, 4, True), (17, 16, True)):
        compare_tree_build("cpu", 3, 4, topk, budget, pairs=pairs, levels=8)
    for nodes, spare in ((1, 0), (8, 3), (18, -30)):
        for write_prefix in (True, False):
            compare_tree_layout("cpu", 3, nodes, write_prefix=write_prefix, dtype=torch.uint8, spare=spare)
    compare_tree_build("cpu", 0, 4, 3, 7, pairs=True, levels=8)
    compare_tree_layout("cpu", 0, 8, write_prefix=True, dtype=torch.bool, spare=9)
    for bs, nodes, depth in ((0, 8, 8), (4, 1, 1), (4, 8, 8), (4, 18, 6)):
        compare_walk("cpu", bs, nodes, depth)
    for bs in (0, 3):
        compare_move_rows("cpu", bs, 8, 5)
        compare_gather("cpu", bs, 8, 5, (2, 700), torch.float32)
    for rows, vocab, ties in ((0, 5, True), (12, 17, True), (12, 17, False), (4, 300, True), (2, 2500, False)):
        compare_kept_probs("cpu", rows, vocab, torch.float32, ties=ties)
    for rows, vocab, ties in ((0, 16, True), (3, 16, True), (3, 4097, True), (3, 9000, False)):
        compare_candidates("cpu", rows, vocab, 5, torch.bfloat16, ties=ties)


def _guarded(buffers):
    """All requests of `buffers` but the last, and the last; both hold the sentinel."""
    for tensor in buffers:
        tensor.fill_(SENTINEL)
    kind = type(buffers)
    return kind(*(tensor[:-1] for tensor in buffers)), kind(*(tensor[-1:] for tensor in buffers))


def _assert_untouched(behind) -> None:
    for name, tensor in zip(behind._fields, behind, strict=True):
        assert torch.equal(tensor, torch.full_like(tensor, SENTINEL)), f"{name}: written behind the last request"


def _assert_equal(expected, actual) -> None:
    names = getattr(expected, "_fields", range(len(expected)))
    for name, wanted, found in zip(names, expected, actual, strict=True):
        assert wanted.dtype == found.dtype, f"{name}: {found.dtype} instead of {wanted.dtype}"
        assert torch.equal(found.cpu(), wanted), f"{name}:\n{found.cpu()}\ninstead of\n{wanted}"
