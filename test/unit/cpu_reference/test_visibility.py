"""Visibility masks against a loop over every cell."""

import random

import pytest
import torch

from sglang.srt.platforms.cpu_reference.visibility import visible_columns


def by_loop(prefix_lens, depths, columns, parents, two_way, window):
    """The definition, cell by cell: ancestors by walking parents, windows in positions."""
    bs, rows = depths.shape
    visible = torch.zeros((bs, rows, columns), dtype=torch.bool)
    for b in range(bs):
        prefix = int(prefix_lens[b])
        for row in range(rows):
            position = prefix + int(depths[b, row])
            path, node = set(), row
            while node >= 0:
                path.add(node)
                node = int(parents[b, node])
            for column in range(min(columns, prefix + rows)):
                if column < prefix:
                    visible[b, row, column] = window < 0 or column >= position - window
                elif two_way:
                    visible[b, row, column] = True
                else:
                    key = column - prefix
                    in_window = window < 0 or prefix + int(depths[b, key]) >= position - window
                    visible[b, row, column] = key in path and in_window
    return visible


def random_tree(rng, bs, rows):
    parents = torch.tensor([[-1] + [rng.randrange(row) for row in range(1, rows)] for _ in range(bs)])
    depths = torch.zeros((bs, rows), dtype=torch.int64)
    ancestors = torch.eye(rows, dtype=torch.bool).repeat(bs, 1, 1)
    for row in range(1, rows):
        for b in range(bs):
            depths[b, row] = depths[b, parents[b, row]] + 1
            ancestors[b, row] |= ancestors[b, parents[b, row]]
    return parents, depths, ancestors


def test_the_worked_tree_of_the_docstring():
    ancestors = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], dtype=torch.bool)
    depths = torch.tensor([[0, 1, 1]])
    visible = visible_columns(torch.tensor([2]), depths, 5, ancestor_mask=ancestors)
    assert visible.int().tolist() == [[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]]
    narrow = visible_columns(torch.tensor([2]), depths, 5, ancestor_mask=ancestors, window=1)
    assert narrow.int().tolist() == [[[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 0, 1]]]


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_chains_and_blocks_equal_the_loop(seed):
    rng = random.Random(seed)
    bs, rows, window = rng.randrange(1, 4), rng.randrange(1, 9), rng.choice([-1, 0, 1, 3, 20])
    prefix_lens = torch.tensor([rng.randrange(0, 12) for _ in range(bs)])
    columns = int(prefix_lens.max()) + rows + rng.randrange(3)
    parents, depths, ancestors = random_tree(rng, bs, rows)
    tree = visible_columns(prefix_lens, depths, columns, ancestor_mask=ancestors, window=window)
    assert torch.equal(tree, by_loop(prefix_lens, depths, columns, parents, False, window))

    chain_depths = torch.arange(rows).repeat(bs, 1)
    chain_parents = chain_depths - 1
    chain = visible_columns(prefix_lens, chain_depths, columns, window=window)
    assert torch.equal(chain, by_loop(prefix_lens, chain_depths, columns, chain_parents, False, window))
    block = visible_columns(prefix_lens, chain_depths, columns, two_way=True, window=window)
    assert torch.equal(block, by_loop(prefix_lens, chain_depths, columns, chain_parents, True, window))
