"""The walk along the target's draws: one tree by hand, then random trees against a step-by-step walk."""

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_layout import chain_parents

from . import trees

A, B, C, D, E, X, Y, Z = range(10, 18)
PARENTS = torch.tensor([[-1, 0, 0, 2, 2]])
TOKENS = torch.tensor([[A, B, C, D, E]])


def test_the_tree_of_the_docstring():
    path = walk(TOKENS, PARENTS, torch.tensor([[C, X, E, Y, Z]]))
    assert path.node_ids.tolist() == [[0, 2, 4, -1, -1]]
    assert path.length.tolist() == [3]
    assert path.tokens.tolist() == [[C, E, Z, 0, 0]]
    assert path.bonus.tolist() == [Z]
    assert path.length.dtype == torch.int32 and path.tokens.dtype == path.node_ids.dtype == torch.int64


@pytest.mark.parametrize(
    "draws, node_ids, emitted",
    [
        ([X, C, D, Y, Z], [0], [X]),  # no child of the root carries its draw; what nodes below want does not matter
        ([B, D, E, Y, Z], [0, 1], [B, D]),  # node 3 carries D, but it is not below node 1
        ([C, X, D, E, Z], [0, 2, 3], [C, D, E]),  # node 4 carries E, but it is beside node 3
    ],
)
def test_a_step_goes_to_a_child_and_nowhere_else(draws, node_ids, emitted):
    path = walk(TOKENS, PARENTS, torch.tensor([draws]), depth=3)
    assert path.node_ids.tolist() == [node_ids + [-1] * (3 - len(node_ids))]
    assert path.tokens.tolist() == [emitted + [0] * (3 - len(emitted))]
    assert (path.length.item(), path.bonus.item()) == (len(emitted), emitted[-1])


@pytest.mark.parametrize("correct", range(4))
def test_a_chain_accepts_up_to_the_first_draw_that_differs(correct):
    tokens = torch.tensor([[A, B, C, D]])
    draws = torch.tensor([[B, C, D, E]])
    if correct < 3:
        draws[0, correct] = X
    path = walk(tokens, chain_parents(1, 4, "cpu"), draws)
    assert path.length.tolist() == [correct + 1]
    assert path.node_ids[0, : correct + 1].tolist() == list(range(correct + 1))
    assert path.tokens[0, : correct + 1].tolist() == draws[0, : correct + 1].tolist()


def test_of_two_children_with_one_token_the_first_is_taken():
    path = walk(torch.tensor([[A, B, B, C, D]]), torch.tensor([[-1, 0, 0, 1, 2]]), torch.tensor([[B, D, D, X, X]]))
    assert path.node_ids.tolist() == [[0, 1, -1, -1, -1]]
    assert path.bonus.tolist() == [D]


def test_padding_is_never_accepted():
    path = walk(torch.tensor([[A, B, A, B]]), torch.tensor([[-1, 0, -1, -1]]), torch.tensor([[A, X, X, X]]))
    assert path.length.tolist() == [1]


@pytest.mark.parametrize("nodes", [1, 2, 7, 16, 40])
def test_random_trees_agree_with_the_walk_step_by_step(nodes):
    """Three tokens alone, so that long paths, equal siblings and early ends all occur."""
    rng = np.random.default_rng(nodes)
    batch = 200
    parents = [trees.random_parents(rng, nodes, padding=min(nodes - 1, index % 3)) for index in range(batch)]
    tokens, draws = rng.integers(0, 3, (2, batch, nodes)).tolist()
    path = walk(torch.tensor(tokens), torch.tensor(parents), torch.tensor(draws))
    lengths = set()
    for row in range(batch):
        node_ids, emitted = trees.follow_draws(tokens[row], parents[row], draws[row])
        rest = nodes - len(node_ids)
        lengths.add(len(node_ids))
        assert path.node_ids[row].tolist() == node_ids + [-1] * rest
        assert path.tokens[row].tolist() == emitted + [0] * rest
        assert (path.length[row].item(), path.bonus[row].item()) == (len(emitted), emitted[-1])
    assert nodes < 7 or len(lengths) >= 3  # the sample is not trivial
