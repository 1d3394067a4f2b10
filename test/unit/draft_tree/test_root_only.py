"""A tree without draft nodes needs no computation, and is what the operations on trees would make of it."""

import pytest
import torch

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.kernels.draft_tree.tree_layout import compile_tree
from sglang.srt.speculative.draft_tree.root_only import RootOnly


@pytest.mark.parametrize("bs", [1, 3, 40])
def test_constants_equal_what_the_operations_compute(bs):
    roots = torch.arange(10, 10 + bs)
    prefix_lens = torch.arange(100, 100 + bs)
    constants = RootOnly("cpu")
    tree, layout = constants.tree(roots), constants.layout(prefix_lens)
    computed = compile_tree(tree.parents, tree.depths, prefix_lens, None)
    for name in computed._fields:
        constant, expected = getattr(layout, name), getattr(computed, name)
        assert torch.equal(constant, expected) and constant.dtype == expected.dtype, name
    draws = torch.arange(50, 50 + bs)[:, None]
    path, walked = constants.path(draws), walk(tree.tokens, tree.parents, draws)
    for name in walked._fields:
        constant, expected = getattr(path, name), getattr(walked, name)
        assert torch.equal(constant, expected) and constant.dtype == expected.dtype, name
