"""What ranks follow: a choice holds once it has come back with the requests, on all ranks alike."""

import torch

from sglang.srt.speculative.draft_tree.config import DraftTreeConfig
from sglang.srt.speculative.draft_tree.pipeline_relay import RelayedTrees, Trees
from sglang.srt.speculative.draft_tree.pipeline_widths import RoundsUnderWay, StageWidths
from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths
from sglang.srt.speculative.draft_tree.width_graphs import MAX_VERIFY_TOKENS

WIDTHS = (1, 4, 16)


def test_a_width_counts_when_it_has_come_back_and_is_asked_for_until_then():
    widths = FollowedWidths(WIDTHS)
    widths.want(2, 16)
    (choice,) = widths.pending()
    assert widths.of(2) == 1  # the other ranks do not know yet
    widths.follow(choice)
    assert widths.of(2) == 16 and widths.pending() == []
    widths.want(2, 16)
    assert widths.pending() == []


def test_a_wish_that_has_changed_back_is_no_longer_asked_for():
    widths = FollowedWidths(WIDTHS)
    widths.want(2, 16)
    widths.follow(widths.pending()[0])
    widths.want(2, 4)
    widths.want(2, 16)
    assert widths.pending() == [] and widths.of(2) == 16


def test_an_unknown_batch_size_follows_the_next_smaller_one_within_what_it_may_use():
    widths = FollowedWidths(WIDTHS)
    widths.want(2, 16)
    widths.follow(widths.pending()[0])
    assert widths.of(1) == 1
    assert widths.of(48) == 16
    assert widths.of(MAX_VERIFY_TOKENS // 8) == 4


def trees(bs: int, nodes: int) -> Trees:
    zeros = torch.zeros(bs, nodes, dtype=torch.int64)
    return Trees(zeros, zeros - 1, zeros, zeros.float())


def test_a_round_without_drafts_has_the_least_width_whatever_is_followed():
    config = DraftTreeConfig(budget=15, topk=4, block_size=4, widths=WIDTHS)
    widths = StageWidths(runner=None, config=config)
    widths.want(2, 16)
    widths.follow(widths.pending()[0])
    assert widths.begin_round(RelayedTrees(["a", "b"], trees(2, 16))) == 16
    assert widths.begin_round(RelayedTrees.of_roots(["a", "b"], torch.tensor([3, 5]))) == 1


class Recorder:
    """In the place of the chooser: what it is told."""

    def __init__(self):
        self.told = []
        self.clock = self.emitted = self

    def end_of_round(self, bs, width):
        self.told.append(("end", bs, width))

    def interrupt(self):
        self.told.append(("interrupt",))

    def add(self, node_ids, path_scores, width):
        self.told.append(("add", len(node_ids), path_scores.shape[1], width))

    def next_width(self, bs, width):
        return 4


def test_rounds_come_back_in_the_order_in_which_they_began():
    """Two micro-batches are under way, of different widths."""
    chooser = Recorder()
    rounds = RoundsUnderWay(chooser)
    rounds.begin(16, trees(3, 16).path_scores)
    rounds.begin(1, trees(2, 1).path_scores)
    assert rounds.end(torch.zeros(3, 4)) == (16, 4)
    rounds.interrupt()
    assert rounds.end(torch.zeros(2, 1)) == (1, 4)
    assert chooser.told == [("end", 3, 16), ("add", 3, 16, 16), ("interrupt",), ("end", 2, 1)]


def test_a_stage_that_does_not_choose_knows_its_widths_alone():
    rounds = RoundsUnderWay(None)
    rounds.begin(16, trees(3, 16).path_scores)
    rounds.interrupt()
    assert rounds.end(torch.zeros(3, 4)) == (16, None)
