"""Ancestors and depths of nodes, against climbing from parent to parent."""

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.tree_layout import ancestor_mask, chain_parents, node_depths

from . import trees


def test_the_mask_of_a_small_tree_row_by_row():
    mask = ancestor_mask(torch.tensor([[-1, 0, 0, 2, 2]]))
    assert mask[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 1, 0, 1],
    ]
    assert node_depths(mask).tolist() == [[0, 1, 1, 2, 2]]


@pytest.mark.parametrize("nodes", [1, 2, 3, 8, 9, 17])
def test_a_chain_is_lower_triangular(nodes):
    mask = ancestor_mask(chain_parents(2, nodes, "cpu"))
    assert torch.equal(mask, torch.ones(2, nodes, nodes).tril().bool())
    assert node_depths(mask).tolist() == [list(range(nodes))] * 2


@pytest.mark.parametrize("nodes", [1, 2, 5, 16, 33, 64])
def test_random_trees_agree_with_climbing(nodes):
    rng = np.random.default_rng(nodes)
    batch = [trees.random_parents(rng, nodes, padding=min(nodes - 1, index % 3)) for index in range(20)]
    mask = ancestor_mask(torch.tensor(batch))
    for row, parents in enumerate(batch):
        for node in range(nodes):
            assert set(mask[row, node].nonzero().flatten().tolist()) == trees.ancestors(parents, node)
