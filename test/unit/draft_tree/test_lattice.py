"""Candidates of a draft pass: scores are log-probabilities over the whole vocabulary, in eager mode and captured."""

from types import SimpleNamespace

import pytest
import torch

from sglang.kernels.draft_tree.tree_build import build_tree
from sglang.srt.speculative.draft_tree import forced_acceptance
from sglang.srt.speculative.draft_tree.forced_acceptance import FIXED_TOKEN, forced_path, with_certain_path
from sglang.srt.speculative.draft_tree.lattice import CapturedLattice, DraftLattice, HeadCandidates, SelectorCandidates
from sglang.srt.speculative.draft_tree.round_measures import emitted_by_width

BS, BLOCK, HIDDEN, VOCAB, TOPK = 3, 5, 16, 40, 4


@pytest.fixture
def head(monkeypatch):
    """An output head that is not split, as upstream's candidate search sees one."""
    from sglang.srt.models import dflash

    monkeypatch.setattr(dflash, "get_parallel", lambda: SimpleNamespace(tp_size=1))
    weight = torch.randn(VOCAB + 8, HIDDEN, generator=torch.Generator().manual_seed(1))  # 8 rows of padding
    return SimpleNamespace(weight=weight, org_vocab_size=VOCAB)


def hidden_states() -> torch.Tensor:
    return torch.randn(BS, BLOCK, HIDDEN, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("topk", [1, 2, 3, TOPK])
def test_scores_are_log_probabilities_of_the_most_likely_tokens(head, topk, device):
    head.weight = head.weight.to(device)
    hidden = hidden_states()[:, 1:].to(device)
    lattice = HeadCandidates(head, topk)(hidden, torch.zeros(BS, dtype=torch.int64, device=device))
    expected = torch.log_softmax(hidden @ head.weight[:VOCAB].T, dim=-1).topk(topk, dim=-1)
    assert torch.equal(lattice.token_ids, expected.indices)
    tolerance = {} if device == "cpu" else {"rtol": 1e-3, "atol": 1e-3}  # another kernel's sums
    torch.testing.assert_close(lattice.scores, expected.values, **tolerance)
    assert lattice.pair_scores is None and lattice.scores.dtype == torch.float32


def test_a_captured_lattice_is_the_eager_one_of_the_masked_positions(head):
    hidden, roots = hidden_states(), torch.tensor([7, 8, 9])
    captured = CapturedLattice(HeadCandidates(head, TOPK), block_size=BLOCK, max_bs=8, device="cpu")
    ids = torch.zeros(BS, BLOCK, dtype=torch.int64)
    ids[:, 0] = roots
    captured(hidden.view(BS * BLOCK, HIDDEN), ids.view(-1))
    eager = HeadCandidates(head, TOPK)(hidden[:, 1:], roots)
    found = captured.lattice(BS)
    assert torch.equal(found.token_ids, eager.token_ids) and torch.equal(found.scores, eager.scores)


def test_a_selectors_steps_become_conditional_log_probabilities(monkeypatch):
    """Two depths of two candidates: the root's row ranks the first depth, a row per candidate the second."""
    steps = torch.tensor([[[[2.0, 1.0], [9.0, 9.0]], [[0.0, 1.0], [3.0, 0.0]]]])
    ids = torch.tensor([[[10, 11], [20, 21]]])
    monkeypatch.setattr(
        "sglang.srt.speculative.dflash_worker_v2._selector_lattice", lambda model, hidden, roots: (ids, steps)
    )
    model = SimpleNamespace(candidate_selector=SimpleNamespace(top_k=2))
    candidates = SelectorCandidates(model, head := object())
    assert model.lm_head is head and candidates.topk == 2
    lattice = candidates(torch.zeros(1, 2, HIDDEN), torch.tensor([5]))
    torch.testing.assert_close(lattice.scores[0, 0], torch.log_softmax(steps[0, 0, 0], dim=-1))
    torch.testing.assert_close(lattice.pair_scores[0, 0], torch.log_softmax(steps[0, 1], dim=-1))
    # 10 has -0.31, 11 -1.31; below 10: 21 -0.31, 20 -1.31; below 11: 20 -0.05. So 10, 10-21, 11, 11-20.
    tree = build_tree(torch.tensor([5]), lattice.token_ids, lattice.scores, 4, lattice.pair_scores)
    assert tree.tokens[0].tolist() == [5, 10, 21, 11, 20]
    assert tree.parents[0].tolist() == [-1, 0, 1, 0, 3]


@pytest.mark.parametrize("length", [3, torch.tensor([3])], ids=["a number", "a tensor, for graphs"])
@pytest.mark.parametrize("mode, expected", [("fixed", [FIXED_TOKEN] * 3), ("real-draft-token", [30, 31, 77])])
def test_forced_acceptance_takes_the_best_path_of_a_tree_that_begins_with_it(monkeypatch, mode, expected, length):
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_TOKEN_MODE", mode)
    ids = torch.tensor([[[30, 40], [31, 41], [32, 42]]])
    uniform = torch.full((1, 3, 2), -0.7)
    lattice = with_certain_path(DraftLattice(ids, uniform, None), length)
    assert uniform.eq(-0.7).all(), "the draft's own buffers stay as they are"
    tree = build_tree(torch.tensor([5]), lattice.token_ids, lattice.scores, 5)
    assert tree.parents[0, :4].tolist() == [-1, 0, 1, 2]
    path = forced_path(tree, torch.full((1, 6), 77), depth=4, length=length)
    assert path.node_ids.tolist() == [[0, 1, 2, -1]] and path.length.tolist() == [3]
    assert path.tokens.tolist() == [[*expected, 0]] and path.bonus.tolist() == expected[-1:]


@pytest.mark.parametrize("asked, longest", [(3.0, 3), (2.25, 3)])
def test_trees_expect_the_forced_length_before_it_is_known_too(monkeypatch, asked, longest):
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_METHOD", "match-expected")
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_LEN", asked)
    ids = torch.arange(16).view(1, 4, 4)
    likely = DraftLattice(ids, torch.full((1, 4, 4), -0.1), torch.full((1, 3, 4, 4), -0.1))
    for lattice in (likely, likely._replace(pair_scores=None)):
        certain = with_certain_path(lattice)
        tree = build_tree(torch.tensor([99]), certain.token_ids, certain.scores, 7, certain.pair_scores)
        assert tree.parents[0, :longest].tolist() == list(range(-1, longest - 1))
        path = torch.tensor([[*range(longest), *[-1] * (5 - longest)]])
        emitted, expected = emitted_by_width(path, tree.path_scores, torch.tensor([1, 2, 4, 8]))
        assert emitted.tolist() == [1.0, 2.0, longest, longest]
        torch.testing.assert_close(expected, emitted)


def test_forced_lengths_meet_their_mean_alike_on_every_rank(monkeypatch):
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_METHOD", "match-expected")
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_LEN", 2.25)
    monkeypatch.setattr(forced_acceptance._Owed, "tokens", 0.0)
    assert [forced_acceptance.forced_length(8) for _ in range(8)] == [2, 2, 2, 3] * 2
    assert [forced_acceptance.forced_length(1) for _ in range(3)] == [1, 1, 1]
    monkeypatch.setattr(forced_acceptance, "SIMULATE_ACC_LEN", 3.0)
    assert [forced_acceptance.forced_length(8) for _ in range(3)] == [3, 3, 3]
