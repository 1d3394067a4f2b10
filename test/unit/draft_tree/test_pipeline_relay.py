"""Trees on their way between pipeline stages: rows follow their requests, whatever becomes of the batch."""

import pytest
import torch

from sglang.srt.speculative.draft_tree.pipeline_relay import RelayedTrees, Trees


def relayed(rids: str, *, nodes: int = 3, round_number: int = 0) -> RelayedTrees:
    """Chains; the root of a request's tree says whose it is, and from which round."""
    tokens = torch.tensor([[1000 * round_number + ord(rid), *range(1, nodes)] for rid in rids])
    chain = torch.arange(-1, nodes - 1).expand(len(rids), nodes)
    scores = torch.arange(0.0, -nodes, -1).expand(len(rids), nodes)
    return RelayedTrees(list(rids), Trees(tokens, chain.clone(), (chain + 1).clone(), scores.clone()))


def roots(trees: RelayedTrees) -> list[tuple[str, int]]:
    return list(zip(trees.rids, trees.trees.tokens[:, 0].tolist(), strict=True))


def test_rows_follow_a_filter():
    trees = relayed("abcd")
    trees.filter_batch(torch.tensor([3, 1]), [3, 1])
    assert roots(trees) == [("d", ord("d")), ("b", ord("b"))]
    assert trees.trees.parents.tolist() == [[-1, 0, 1]] * 2


def test_a_merge_pads_the_narrower_trees_with_nodes_of_nobody():
    trees = relayed("a", nodes=2)
    trees.merge_batch(relayed("bc", nodes=4))
    assert roots(trees) == [(rid, ord(rid)) for rid in "abc"]
    assert trees.trees.parents.tolist() == [[-1, 0, -1, -1], [-1, 0, 1, 2], [-1, 0, 1, 2]]
    assert trees.trees.depths.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert trees.trees.path_scores[0].tolist() == [0, -1, -torch.inf, -torch.inf]


def test_a_request_after_its_prompt_has_a_root_alone():
    relayed_roots = RelayedTrees.of_roots(["a"], torch.tensor([7]))
    assert not relayed_roots.has_drafts
    trees = relayed_roots.trees.of_width(3)
    assert trees.tokens.tolist() == [[7, 0, 0]] and trees.parents.tolist() == [[-1] * 3] and not trees.depths.any()
    relayed_roots.merge_batch(relayed("b"))
    assert relayed_roots.has_drafts


def test_a_tree_is_cut_to_its_first_nodes():
    trees = relayed("ab", nodes=4).trees.of_width(2)
    assert trees.tokens.tolist() == [[ord("a"), 1], [ord("b"), 1]] and trees.depths.tolist() == [[0, 1]] * 2
    assert all(field.is_contiguous() for field in trees)


@pytest.mark.parametrize("live", ["abc", "ca", "cadb"])
def test_what_comes_back_is_taken_by_request_and_not_by_row(live):
    """The batch may have lost, gained and reordered requests since the forward whose trees come back."""
    carried = relayed(live)
    updated = carried.updated(relayed("abc", round_number=1))
    assert roots(updated) == [(rid, ord(rid) + 1000 * (rid in "abc")) for rid in live]


def test_a_request_without_trees_is_an_error():
    with pytest.raises(KeyError):
        relayed("ab").of(["a", "x"])
