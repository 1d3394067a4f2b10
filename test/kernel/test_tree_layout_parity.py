"""Positions, links and the flat mask by hand; random trees step by step; the kernel against the reference."""

import numpy as np
import pytest
import torch

from sglang.kernels.draft_tree.tree_layout import child_links, compile_tree, write_flat_mask

from .lattices import random_parents
from .parity import compare_tree_layout

PARENTS = torch.tensor([[-1, 0, 0, 2, 2]])
DEPTHS = torch.tensor([[0, 1, 1, 2, 2]])


def test_the_tree_of_the_docstring():
    layout = compile_tree(PARENTS, DEPTHS, torch.tensor([30]))
    assert layout.positions.tolist() == [[30, 31, 31, 32, 32]]
    assert layout.next_child.tolist() == [[1, -1, 3, -1, -1]]
    assert layout.next_sibling.tolist() == [[-1, 2, -1, 4, -1]]
    assert layout.ancestor_mask[0, 4].tolist() == [True, False, True, False, True]


def test_padding_has_no_links_and_is_in_none():
    next_child, next_sibling = child_links(torch.tensor([[-1, 0, -1, -1]]))
    assert next_child.tolist() == [[1, -1, -1, -1]]
    assert next_sibling.tolist() == [[-1, -1, -1, -1]]


def test_the_flat_mask_of_two_requests_cell_by_cell():
    parents = torch.tensor([[-1, 0, 0], [-1, 0, 1]])
    mask = compile_tree(parents, torch.tensor([[0, 1, 1], [0, 1, 2]]), torch.tensor([2, 0])).ancestor_mask
    prefixed = [
        *(1, 1, 1, 0, 0),
        *(1, 1, 1, 1, 0),
        *(1, 1, 1, 0, 1),
        *(1, 0, 0),
        *(1, 1, 0),
        *(1, 1, 1),
    ]
    out = torch.full((26,), 7, dtype=torch.uint8)
    assert write_flat_mask(mask, torch.tensor([2, 0]), out) is out
    assert out.tolist() == [*prefixed, 7, 7]

    out = torch.full((26,), 7, dtype=torch.uint8)
    write_flat_mask(mask, torch.tensor([2, 0]), out, write_prefix=False)
    kept = [7, 7, 1, 0, 0, 7, 7, 1, 1, 0, 7, 7, 1, 0, 1]
    assert out.tolist() == [*kept, *prefixed[15:], 7, 7]

    out = torch.full((20,), 7, dtype=torch.uint8)
    write_flat_mask(mask, torch.tensor([2, 0]), out)
    assert out.tolist() == prefixed[:20]


@pytest.mark.parametrize("flat", [torch.zeros(9, dtype=torch.int64), torch.zeros(9, 2, dtype=torch.bool)[:, 0]])
def test_a_flat_mask_of_another_kind_is_refused(flat):
    with pytest.raises(ValueError, match="flat mask: found .* one contiguous dimension of torch.bool or torch.uint8"):
        compile_tree(PARENTS, DEPTHS, torch.tensor([30]), flat)


@pytest.mark.parametrize("nodes", [1, 2, 9, 40])
def test_random_links_agree_with_a_search(nodes):
    parents, _ = random_parents(np.random.default_rng(nodes), 60, nodes)
    next_child, next_sibling = child_links(parents)
    for row, tree in enumerate(parents.tolist()):
        for node in range(nodes):
            children = [n for n in range(1, nodes) if tree[n] == node]
            later = [n for n in range(node + 1, nodes) if tree[n] == tree[node] >= 0]
            assert next_child[row, node] == (children[0] if children else -1)
            assert next_sibling[row, node] == (later[0] if later else -1)


@pytest.mark.gpu
@pytest.mark.parametrize("nodes", [1, 2, 8, 32, 33, 34, 65, 129, 256])
@pytest.mark.parametrize("bs", [1, 3, 32])
@pytest.mark.parametrize("write_prefix", [False, True])
def test_kernel_agrees_with_the_reference(nodes, bs, write_prefix):
    for spare, dtype in ((0, torch.bool), (19, torch.uint8), (-nodes, torch.bool)):
        compare_tree_layout("cuda", bs, nodes, write_prefix=write_prefix, dtype=dtype, spare=spare)


@pytest.mark.gpu
def test_buffers_without_a_tree_end_every_climb():
    """Graph capture runs on buffers of zeros, in which every node is its own or the root's child."""
    zeros = torch.zeros(2, 33, dtype=torch.int64, device="cuda")
    layout = compile_tree(zeros, zeros, zeros[:, 0])
    torch.cuda.synchronize()
    assert layout.ancestor_mask[0, 5].nonzero().flatten().tolist() == [0, 5]
