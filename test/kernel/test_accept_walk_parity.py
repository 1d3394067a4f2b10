"""The walk's kernel against its reference. The reference's own tests: test/unit/draft_tree/test_accept.py."""

import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_layout import chain_parents

from .parity import compare_walk


def test_a_walk_deeper_than_the_result_ends_there():
    tokens = torch.tensor([[5, 6, 7, 8]])
    path = walk(tokens, chain_parents(1, 4, "cpu"), torch.tensor([[6, 7, 8, 9]]), depth=2)
    assert path.node_ids.tolist() == [[0, 1]]
    assert (path.length.tolist(), path.tokens.tolist(), path.bonus.tolist()) == ([2], [[6, 7]], [7])


@pytest.mark.parametrize("depth", [0, 5])
def test_a_depth_that_no_tree_of_this_size_has_is_refused(depth):
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"depth is {depth}; with 4 nodes it must be 1 to 4"):
        walk(tokens, tokens, tokens, depth)


@pytest.mark.gpu
@pytest.mark.parametrize("nodes, depth", [(1, 1), (2, 2), (8, 8), (32, 7), (33, 16), (65, 9), (129, 31), (256, 256)])
@pytest.mark.parametrize("bs", [1, 3, 32])
def test_kernel_agrees_with_the_reference(nodes, depth, bs):
    compare_walk("cuda", bs, nodes, depth)
