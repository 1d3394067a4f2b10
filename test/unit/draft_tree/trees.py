"""Random trees, and the slow and plain rules that the batched code must agree with."""

import numpy as np


def random_parents(rng: np.random.Generator, nodes: int, padding: int = 0) -> list[int]:
    """Parents of a random tree of `nodes` nodes; the last `padding` of them are padding."""
    linked = nodes - padding
    return [-1] + [int(rng.integers(0, node)) for node in range(1, linked)] + [-1] * padding


def ancestors(parents: list[int], node: int) -> set[int]:
    """The node itself and everything above it."""
    found = {node}
    while parents[node] >= 0:
        node = parents[node]
        found.add(node)
    return found


def path_below_root(tokens: list[int], parents: list[int], node: int) -> list[int]:
    """Tokens from below the root down to the node."""
    path = []
    while node > 0:
        path.append(tokens[node])
        node = parents[node]
    return path[::-1]


def follow_draws(tokens: list[int], parents: list[int], draws: list[int]) -> tuple[list[int], list[int]]:
    """Node ids and emitted tokens, one step at a time from parent to child."""
    node, path, emitted = 0, [0], [draws[0]]
    while True:
        children = [n for n in range(1, len(tokens)) if parents[n] == node and tokens[n] == draws[node]]
        if not children:
            return path, emitted
        node = children[0]
        path.append(node)
        emitted.append(draws[node])
