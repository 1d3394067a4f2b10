"""What rounds say about widths."""

import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_build import build_tree
from sglang.srt.speculative.draft_tree import device_clock
from sglang.srt.speculative.draft_tree.round_measures import EmittedByWidth, RoundClock, emitted_by_width

WIDTHS = (1, 2, 4, 8, 16)
DEPTHS, TOPK, VOCABULARY = 5, 4, 9


def random_lattice(bs: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.log_softmax(torch.randn(bs, DEPTHS, TOPK, generator=generator), dim=-1)
    scores = scores.sort(dim=-1, descending=True).values
    token_ids = torch.rand(bs, DEPTHS, VOCABULARY, generator=generator).argsort(dim=-1)[..., :TOPK].contiguous()
    roots = torch.randint(VOCABULARY, (bs,), generator=generator)
    return roots, token_ids, scores, generator


@pytest.mark.parametrize("seed", range(20))
def test_a_large_tree_says_what_each_smaller_one_would_have_accepted(seed):
    bs = 6
    roots, token_ids, scores, generator = random_lattice(bs, seed)
    whole = build_tree(roots, token_ids, scores, WIDTHS[-1] - 1)
    # What the target draws depends on the node's path alone, so that equal nodes of two trees draw alike.
    wanted = torch.randint(VOCABULARY, (DEPTHS + 1, VOCABULARY), generator=generator)
    draws = wanted[whole.depths, whole.tokens]
    path = walk(whole.tokens, whole.parents, draws, DEPTHS + 1)
    emitted, expected = emitted_by_width(path.node_ids, whole.path_scores, torch.tensor(WIDTHS))
    for place, width in enumerate(WIDTHS):
        if width == 1:
            assert emitted[place] == expected[place] == bs
            continue
        tree = build_tree(roots, token_ids, scores, width - 1)
        for small, large in zip(tree, whole, strict=True):
            assert torch.equal(small, large[:, :width])
        own = walk(tree.tokens, tree.parents, wanted[tree.depths, tree.tokens], min(width, DEPTHS + 1))
        assert emitted[place] == own.length.sum()
        assert expected[place] == pytest.approx(float(tree.path_scores.exp().sum()), rel=1e-5)


def test_padding_is_expected_to_emit_nothing():
    roots, token_ids, scores, _ = random_lattice(1, seed=1)
    scores[:, :, 1:] = -torch.inf  # one candidate a depth: the tree ends with the chain
    tree = build_tree(roots, token_ids, scores, 15)
    path = walk(tree.tokens, tree.parents, torch.full_like(tree.tokens, -5), DEPTHS + 1)
    emitted, expected = emitted_by_width(path.node_ids, tree.path_scores, torch.tensor(WIDTHS))
    assert emitted.tolist() == [1.0] * len(WIDTHS)
    assert expected[-1] == expected[-2] == pytest.approx(float(1 + scores[0, :, 0].cumsum(0).exp().sum()), rel=1e-5)


def test_figures_come_once_and_in_order():
    figures = EmittedByWidth(WIDTHS, "cpu")
    roots, token_ids, scores, _ = random_lattice(3, seed=2)
    tree = build_tree(roots, token_ids, scores, 15)
    path = walk(tree.tokens, tree.parents, tree.tokens, DEPTHS + 1)
    figures.add(path.node_ids, tree.path_scores, 4)
    figures.add(path.node_ids, tree.path_scores, 8)
    first, second = figures.collect()
    assert (first.width, second.width, first.requests) == (4, 8, 3)
    assert len(first.emitted) == len(first.expected) == len(WIDTHS)
    assert list(figures.collect()) == []


def test_requests_without_drafts_are_left_out():
    """Those just after their prompt accept nothing, which says nothing of the draft."""
    figures = EmittedByWidth(WIDTHS, "cpu")
    roots, token_ids, scores, _ = random_lattice(3, seed=3)
    tree = build_tree(roots, token_ids, scores, 15)
    path = walk(tree.tokens, tree.parents, tree.tokens, DEPTHS + 1)
    undrafted = torch.full((2, 16), -torch.inf).index_fill_(1, torch.tensor([0]), 0.0)
    nothing = torch.tensor([0, *[-1] * DEPTHS]).expand(2, -1)
    figures.add(path.node_ids, tree.path_scores, 8)
    figures.add(torch.cat([path.node_ids, nothing]), torch.cat([tree.path_scores, undrafted]), 8)
    figures.add(nothing, undrafted, 8)
    alone, beside = figures.collect()
    assert beside == alone and alone.requests == 3


def test_over_stages_an_interval_is_the_round_that_ends_it(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr(device_clock.time, "perf_counter", lambda: next(clock))
    rounds = RoundClock("cpu", alike=False)
    rounds.end_of_round(2, 8)
    rounds.end_of_round(3, 8)  # another micro-batch, 1 s
    rounds.end_of_round(2, 4)  # 2 s
    rounds.interrupt()
    rounds.end_of_round(3, 8)
    rounds.end_of_round(2, 4)  # 4 s
    assert list(rounds.collect()) == [(3, 8, 1.0), (2, 4, 2.0), (2, 4, 4.0)]


def test_only_rounds_alike_and_without_a_break_are_timed(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 10.0, 14.0, 20.0])
    monkeypatch.setattr(device_clock.time, "perf_counter", lambda: next(clock))
    rounds = RoundClock("cpu")
    rounds.end_of_round(2, 8)
    rounds.end_of_round(2, 8)  # 1 s
    rounds.end_of_round(2, 1)  # another width
    rounds.interrupt()  # a prefill
    rounds.end_of_round(2, 1)
    rounds.end_of_round(2, 1)  # 4 s
    rounds.end_of_round(3, 1)  # another batch
    assert list(rounds.collect()) == [(2, 8, 1.0), (2, 1, 4.0)]
    assert list(rounds.collect()) == []
