"""Accept length on a known continuation: hand-computed rounds, and trees against every path sorted by score."""

import itertools

import numpy as np
import pytest

from benchmark.draft_training.accept import Candidates, chain_matches, replay_rounds, tree_ranks


def candidates(tokens: list[list[int]], probabilities: list[list[float]]) -> Candidates:
    return Candidates(np.array(tokens), np.log(np.array(probabilities)))


# depth 1 proposes 5 or 6, depth 2 proposes 7 or 8; path scores: 5: .6  6: .3  57: .42  58: .12  67: .21  68: .06
TWO_DEPTHS = candidates([[5, 6], [7, 8]], [[0.6, 0.3], [0.7, 0.2]])


@pytest.mark.parametrize(("following", "matches"), [([5, 7, 1], 2), ([5, 8, 1], 1), ([6, 7, 1], 0), ([5], 1), ([], 0)])
def test_a_chain_accepts_the_leading_best_candidates(following, matches):
    assert chain_matches(TWO_DEPTHS, following) == matches


@pytest.mark.parametrize(
    ("following", "ranks"),
    [
        ([5, 7], [1, 2]),
        ([6, 7], [3, 4]),  # taken up in the order 5, 57, 6, 67, 58, 68
        ([5, 8], [1, 5]),
        ([6, 8], [3, 6]),
        ([6, 9], [3]),
        ([9, 7], []),
    ],
)
def test_a_best_first_tree_takes_up_nodes_by_score(following, ranks):
    assert tree_ranks(TWO_DEPTHS, following, largest=10) == ranks


def test_ranks_beyond_the_largest_tree_are_left_out():
    assert tree_ranks(TWO_DEPTHS, [6, 8], largest=3) == [3]


@pytest.mark.parametrize("seed", range(20))
def test_tree_ranks_equal_the_places_among_all_paths_sorted_by_score(seed):
    rng = np.random.default_rng(seed)
    depths, width = 4, 3
    tokens = np.array([rng.permutation(10)[:width] for _ in range(depths)])
    log_probs = -np.sort(rng.exponential(size=(depths, width)), axis=1)
    paths = [path for depth in range(1, depths + 1) for path in itertools.product(range(width), repeat=depth)]
    paths.sort(key=lambda path: -sum(log_probs[depth, place] for depth, place in enumerate(path)))
    chosen = rng.integers(width, size=depths)
    expected = [paths.index(tuple(int(place) for place in chosen[: depth + 1])) + 1 for depth in range(depths)]
    following = [int(tokens[depth, place]) for depth, place in enumerate(chosen)]
    assert tree_ranks(Candidates(tokens, log_probs), following, largest=len(paths)) == expected


def test_rounds_jump_by_what_they_emit():
    asked = []

    def two_when_even(position, following):
        asked.append((position, list(following)))
        return 2 if position % 2 == 0 else 0

    # anchor 0 emits 1 2 3; anchor 3 emits 4; anchor 4 emits 5 6, where the text ends
    assert replay_rounds([10, 11, 12, 13, 14, 15, 16], two_when_even) == (6, 3)
    assert asked == [(0, [11, 12, 13, 14, 15, 16]), (3, [14, 15, 16]), (4, [15, 16])]


@pytest.mark.parametrize("continuation", [[], [10]])
def test_a_continuation_that_came_with_the_prompt_has_no_rounds(continuation):
    assert replay_rounds(continuation, lambda position, following: 0) == (0, 0)
