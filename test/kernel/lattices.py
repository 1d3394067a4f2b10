"""Random inputs of the draft-tree operations, and the best-first build by a heap over every candidate."""

import heapq
from typing import NamedTuple

import numpy as np
import torch

# Sums of so many multiples of 1 / 64 are exact in float32, whatever the order.
GRID = 64


class Inputs(NamedTuple):
    """Arguments of build_tree, without the budget."""

    root_tokens: torch.Tensor
    token_ids: torch.Tensor
    scores: torch.Tensor
    pair_scores: torch.Tensor | None

    def to(self, device: str) -> "Inputs":
        return Inputs(*(value if value is None else value.to(device) for value in self))


def random_inputs(
    rng: np.random.Generator, bs: int, depths: int, topk: int, *, pairs: bool, levels: int | None = 8
) -> Inputs:
    """Lattices with step scores of `levels` values (few values, many ties), or of any value for None.

    A third of the candidates of every other request is never to be taken.
    """

    def draw(*shape: int) -> np.ndarray:
        if levels is None:
            return -rng.exponential(2.0, shape).astype(np.float32)
        return -rng.integers(0, levels, shape).astype(np.float32) * (GRID // 8) / GRID

    scores = draw(bs, depths, topk)
    scores[::2][rng.random(scores[::2].shape) < 1 / 3] = -np.inf
    pair_scores = None
    if pairs:
        pair_scores = draw(bs, depths - 1, topk, topk)
        pair_scores[::2][rng.random(pair_scores[::2].shape) < 1 / 3] = -np.inf
        pair_scores = torch.from_numpy(pair_scores)
    else:
        scores = -np.sort(-scores, axis=-1)
    token_ids = torch.from_numpy(rng.integers(0, 1 << 40, (bs, depths, topk)))
    root_tokens = torch.from_numpy(rng.integers(0, 1 << 40, bs))
    return Inputs(root_tokens, token_ids, torch.from_numpy(np.ascontiguousarray(scores)), pair_scores)


def build_by_heap(scores: np.ndarray, pair_scores: np.ndarray | None, budget: int) -> list[tuple[int, int, int, float]]:
    """Parent, depth, rank and path score of every node of one tree: root, chosen nodes, padding."""
    depths, topk = scores.shape
    nodes = [(-1, 0, 0, 0.0)]
    heap = []
    for node in range(1 + budget):
        if node > 0:
            if not heap:
                break
            negative, rank, parent = heapq.heappop(heap)
            nodes.append((parent, nodes[parent][1] + 1, rank, -negative))
        _, depth, parent_rank, path_score = nodes[node]
        if depth == depths:
            continue
        steps = scores[depth]
        if pair_scores is not None and depth > 0:
            steps = steps + pair_scores[depth - 1, parent_rank]
        for rank, score in enumerate((np.float32(path_score) + steps).tolist()):
            if score > -np.inf:
                heapq.heappush(heap, (-score, rank, node))
    return nodes + [(-1, 0, 0, -np.inf)] * (1 + budget - len(nodes))


def random_parents(rng: np.random.Generator, bs: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Parents and depths [bs, nodes] of random trees: bushy ones, chains, and some with padding at the end."""
    parents = np.full((bs, nodes), -1)
    depths = np.zeros((bs, nodes), dtype=np.int64)
    for row in range(bs):
        reach = rng.choice([1, 3, nodes])
        padding = rng.integers(0, nodes) if row % 3 == 2 else 0
        for node in range(1, nodes - padding):
            parents[row, node] = rng.integers(max(0, node - reach), node)
            depths[row, node] = depths[row, parents[row, node]] + 1
    return torch.from_numpy(parents), torch.from_numpy(depths)
