"""Accept length on a known greedy continuation, round by round, as serving has it.

Greedy verification emits exactly the target's own tokens, so the rounds of serving can be replayed on the text: a round
starts at the last emitted token (the anchor), accepts the draft tokens that equal the text, and the target adds one.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Candidates:
    """The draft's best tokens at every depth after one anchor, best first.

    ``tokens`` int [depths, k]; ``log_probs`` float [depths, k], normalized over the whole vocabulary.
    """

    tokens: np.ndarray
    log_probs: np.ndarray


def chain_matches(candidates: Candidates, following: Sequence[int]) -> int:
    """Returns how many of the chain's tokens are accepted: the first candidates that equal ``following``."""
    matches = 0
    for token, best in zip(following, candidates.tokens[:, 0], strict=False):
        if token != best:
            break
        matches += 1
    return matches


def tree_ranks(candidates: Candidates, following: Sequence[int], largest: int) -> list[int]:
    """Returns when a best-first tree takes up the nodes along ``following``, as 1-based ranks, ascending.

    A node's score is the sum of its path's log-probabilities. Best-first trees are nested, so the tree of n nodes
    accepts the ranks up to n. The list ends where the text leaves the candidates or a rank passes ``largest``.
    """
    depths, width = candidates.tokens.shape
    path = []
    for token, row in zip(following, candidates.tokens, strict=False):
        places = np.flatnonzero(row == token)
        if not len(places):
            break
        path.append(int(places[0]))
    ranks: list[int] = []
    scores = candidates.log_probs.tolist()
    # (minus the score, the candidate's place at each depth); ties go to the better places
    heap: list[tuple[float, tuple[int, ...]]] = [(-scores[0][0], (0,))]
    for rank in range(1, largest + 1):
        if len(ranks) == len(path) or not heap:
            break
        cost, places = heapq.heappop(heap)
        if places == tuple(path[: len(ranks) + 1]):
            ranks.append(rank)
        depth, place = len(places), places[-1]
        if place + 1 < width:
            sibling = cost + scores[depth - 1][place] - scores[depth - 1][place + 1]
            heapq.heappush(heap, (sibling, (*places[:-1], place + 1)))
        if depth < depths:
            heapq.heappush(heap, (cost - scores[depth][0], (*places, 0)))
    return ranks


def replay_rounds(continuation: Sequence[int], matches: Callable[[int, Sequence[int]], int]) -> tuple[int, int]:
    """Replays the rounds of one request; returns the tokens they emit and their number.

    ``matches(i, following)`` is how many of the tokens after ``continuation[i]`` one round accepts. The first token
    comes with the prompt and is the first anchor. A round emits what it accepts and one token more, as far as the text
    goes.
    """
    position = rounds = 0
    while position < len(continuation) - 1:
        accepted = matches(position, continuation[position + 1 :])
        position = min(position + accepted + 1, len(continuation) - 1)
        rounds += 1
    return max(0, len(continuation) - 1), rounds
