"""The best-first build: trees by hand, random lattices against a heap, and the kernel against the reference."""

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.tree_build import build_tree, empty_tree

from .lattices import build_by_heap, random_inputs
from .parity import compare_tree_build

R, A, B, C, D = range(10, 15)
ROOT = torch.tensor([R])
TOKENS = torch.tensor([[[A, B], [C, D]]])
SCORES = torch.tensor([[[-0.5, -1.0], [-0.25, -2.0]]])
CONFIGURATIONS = 50
LATTICES = 200  # per configuration


def test_the_tree_of_the_docstring():
    tree = build_tree(ROOT, TOKENS, SCORES, 5)
    assert tree.tokens.tolist() == [[R, A, C, B, C, D]]
    assert tree.parents.tolist() == [[-1, 0, 1, 0, 3, 1]]
    assert tree.depths.tolist() == [[0, 1, 2, 1, 2, 2]]
    assert tree.ranks.tolist() == [[0, 0, 0, 1, 0, 1]]
    assert tree.path_scores.tolist() == [[0.0, -0.5, -0.75, -1.0, -1.25, -2.5]]


def test_nodes_without_a_candidate_are_padding():
    scores = torch.tensor([[[-0.5, -torch.inf], [-0.25, -torch.inf]]])
    tree = build_tree(ROOT, TOKENS, scores, 4)
    assert tree.tokens.tolist() == [[R, A, C, 0, 0]]
    assert tree.parents.tolist() == [[-1, 0, 1, -1, -1]]
    assert tree.depths.tolist() == [[0, 1, 2, 0, 0]]
    assert tree.ranks.tolist() == [[0, 0, 0, 0, 0]]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("topk", [1, 2])
def test_scores_that_are_no_number_are_never_taken(device, topk):
    """As of a draft whose logits are none: the tokens beside them may lie outside of the vocabulary."""
    scores = torch.full((1, 2, topk), torch.nan, device=device)
    tree = build_tree(ROOT.to(device), TOKENS[:, :, :topk].to(device), scores, 3)
    assert tree.tokens.tolist() == [[R, 0, 0, 0]] and tree.parents.tolist() == [[-1, -1, -1, -1]]


def test_pair_scores_order_the_children_of_each_parent_on_their_own():
    """Below A, D is better than C; below B it is C."""
    pairs = torch.tensor([[[[-3.0, 0.0], [0.0, -3.0]]]])
    scores = torch.tensor([[[-0.5, -1.0], [-0.25, -0.5]]])
    tree = build_tree(ROOT, TOKENS, scores, 4, pairs)
    assert tree.tokens.tolist() == [[R, A, B, D, C]]  # D below A -1.0, C below B -1.25
    assert tree.parents.tolist() == [[-1, 0, 0, 1, 2]]
    assert tree.ranks.tolist() == [[0, 0, 1, 1, 0]]


def test_of_equal_path_scores_the_smaller_rank_then_the_smaller_parent_goes_first():
    tree = build_tree(ROOT, TOKENS, torch.zeros(1, 2, 2), 6)
    # Rank 0: A, C below A. Rank 1: B below the root, whose id is smaller; then rank 0 again, C below B; then D, D.
    assert tree.tokens.tolist() == [[R, A, C, B, C, D, D]]
    assert tree.parents.tolist() == [[-1, 0, 1, 0, 3, 1, 3]]


@pytest.mark.parametrize("pairs", [False, True])
def test_random_lattices_agree_with_a_heap(pairs):
    """10,000 lattices in all, with few distinct scores, so that ties decide often."""
    rng = np.random.default_rng(pairs)
    padded = full = 0
    for _ in range(CONFIGURATIONS // 2):
        budget, depths, topk = (int(rng.integers(1, limit + 1)) for limit in (64, 15, 16))
        tree, expected = _build_both(rng, LATTICES, depths, topk, budget, pairs=pairs, levels=8)
        assert torch.equal(torch.stack([tree.parents, tree.depths, tree.ranks], dim=-1), expected[..., :3].long())
        assert torch.equal(tree.path_scores, expected[..., 3].float())
        padded += int((tree.parents[:, -1] == -1).sum())
        full += int((tree.parents[:, -1] >= 0).sum())
    assert min(padded, full) > 100  # both kinds of tree were there


def test_continuous_scores_agree_bit_for_bit():
    """Path scores are sums in float32 from the root downwards."""
    rng = np.random.default_rng(3)
    tree, expected = _build_both(rng, 500, 7, 8, 48, pairs=False, levels=None)
    assert torch.equal(torch.stack([tree.parents, tree.depths, tree.ranks], dim=-1), expected[..., :3].long())
    assert torch.equal(tree.path_scores, expected[..., 3].float())


def test_tokens_are_those_of_the_candidates():
    inputs = random_inputs(np.random.default_rng(4), 50, 5, 4, pairs=True)
    tree = build_tree(*inputs[:3], 20, inputs.pair_scores)
    request = torch.arange(50)[:, None]
    tokens = inputs.token_ids[request, tree.depths - 1, tree.ranks].masked_fill(tree.parents < 0, 0)
    tokens[:, 0] = inputs.root_tokens
    assert torch.equal(tree.tokens, tokens)


def test_given_tensors_are_filled_and_returned():
    out = empty_tree(1, 4, "cpu")
    for tensor in out:
        tensor.fill_(77)
    tree = build_tree(ROOT, TOKENS, SCORES, 4, out=out)
    assert all(a is b for a, b in zip(tree, out, strict=True))
    assert out.tokens.tolist() == [[R, A, C, B, C]]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"budget": 0}, "budget is 0; it must be 1 to 255"),
        ({"budget": 256}, "budget is 256"),
        ({"scores": SCORES.double()}, r"scores is torch.float64 \[1, 2, 2\]; .* must be torch.float32"),
        ({"token_ids": TOKENS[:, :1]}, r"token_ids is torch.int64 \[1, 1, 2\]"),
        ({"pair_scores": torch.zeros(1, 2, 2, 2)}, r"must be torch.float32 \[1, 1, 2, 2\]"),
        ({"out": empty_tree(1, 3, "cpu")}, r"out.tokens is torch.int64 \[1, 4\] .* must be torch.int64 \[1, 5\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"root_tokens": ROOT, "token_ids": TOKENS, "scores": SCORES, "budget": 4, **change}
    with pytest.raises(ValueError, match=message):
        build_tree(**arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("budget", [1, 7, 31, 32, 33, 64, 128, 255])
@pytest.mark.parametrize("bs", [1, 3, 32])
@pytest.mark.parametrize("topk", [1, 8, 16])
@pytest.mark.parametrize("pairs", [False, True])
def test_kernel_agrees_with_the_reference(budget, bs, topk, pairs):
    compare_tree_build("cuda", bs, 15, topk, budget, pairs=pairs, levels=8)
    compare_tree_build("cuda", bs, 31, topk, budget, pairs=pairs, levels=None)


def _build_both(rng, bs, depths, topk, budget, *, pairs, levels):
    inputs = random_inputs(rng, bs, depths, topk, pairs=pairs, levels=levels)
    tree = build_tree(*inputs[:3], budget, inputs.pair_scores, backend="torch")
    scores = inputs.scores.numpy()
    pair_scores = [None] * bs if inputs.pair_scores is None else inputs.pair_scores.numpy()
    expected = [build_by_heap(*each, budget) for each in zip(scores, pair_scores, strict=True)]
    return tree, torch.tensor(expected, dtype=torch.float64)
