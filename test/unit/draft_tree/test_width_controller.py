"""The choice of verify widths, on a simulated server whose costs and acceptance are known."""

import random

import pytest

from sglang.srt.speculative.draft_tree.width_controller import (
    BATCH_CLASSES,
    AcceptLengths,
    RoundCost,
    WidthController,
    batch_class,
)

WIDTHS = (1, 4, 8, 16, 32, 64)
BLOCK = 8


class SimulatedServer:
    """Rounds of a server: `seconds(bs, width)` each, `emitted(width)` tokens per request on average."""

    def __init__(self, seconds, emitted, seed=0, believed=1.0):
        self.seconds, self.emitted, self.believed = seconds, emitted, believed
        self.random = random.Random(seed)
        self.last = None
        self.time, self.tokens = 0.0, 0.0

    def noisy(self, value):
        return value * self.random.uniform(0.95, 1.05)

    def run(self, controller, bs, rounds, width=None):
        """`rounds` rounds; `width` None lets the controller choose. Returns tokens per second and request."""
        time, tokens = self.time, self.tokens
        for _ in range(rounds):
            chosen = controller.after_round(bs, self.last[1] if self.last else 1) if width is None else width
            cost = self.noisy(self.seconds(bs, chosen))
            if self.last == (bs, chosen):
                controller.add_cost(bs, chosen, cost)
            if chosen > 1:
                emitted = [bs * self.noisy(self.emitted(w)) for w in WIDTHS]
                expected = [bs * (1 + self.believed * (self.emitted(w) - 1)) for w in WIDTHS]
                controller.add_emitted(chosen, bs, emitted, expected)
            self.last = (bs, chosen)
            self.time += cost
            self.tokens += self.emitted(chosen)
        return (self.tokens - tokens) / (self.time - time)

    def best(self, bs):
        return max(self.emitted(width) / self.seconds(bs, width) for width in WIDTHS)


def memory_bound(bs, width):
    """Weights are read once, and beyond some tokens each costs time: the shape of a GPU's rounds."""
    drafting = 0.3e-3 if width > 1 else 0.0
    return 1e-3 + drafting + 2e-6 * max(0, bs * width - 150)


def saturating(width):
    return 1.0 if width == 1 else min(BLOCK, 1.0 + 0.45 * (width - 1) ** 0.45)


@pytest.mark.parametrize("bs", [1, 8, 32, 128, 256])
def test_every_load_gets_nearly_the_best_width(bs):
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK)
    server.run(controller, bs, 500)
    assert server.run(controller, bs, 5000) > 0.97 * server.best(bs)


@pytest.mark.parametrize("bs", [1, 64])
def test_a_draft_that_is_never_right_costs_almost_nothing(bs):
    server = SimulatedServer(memory_bound, lambda width: 1.0)
    controller = WidthController(WIDTHS, BLOCK)
    server.run(controller, bs, 500)
    assert server.run(controller, bs, 5000) > 0.985 / memory_bound(bs, 1)


@pytest.mark.parametrize("wrong", WIDTHS)
@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("bs", [4, 96])
def test_a_table_that_lies_by_two_loses_less_than_five_percent(wrong, factor, bs):
    size = batch_class(bs)
    claims = {(size, w): memory_bound(bs, w) * (factor if w == wrong else 1.0) for w in WIDTHS}
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK, claims)
    server.run(controller, bs, 1000)
    assert server.run(controller, bs, 4000) > 0.95 * server.best(bs)


def test_a_draft_that_becomes_better_is_noticed_while_decoding_plainly():
    server = SimulatedServer(memory_bound, lambda width: 1.0)
    controller = WidthController(WIDTHS, BLOCK)
    server.run(controller, 16, 4000)
    assert server.last == (16, 1)
    server.emitted = saturating
    server.run(controller, 16, 3000)
    assert server.run(controller, 16, 1000) > 0.95 * server.best(16)


def test_a_draft_that_becomes_worse_is_left_within_a_few_rounds():
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK)
    server.run(controller, 64, 1000)
    assert server.last[1] > 1
    server.emitted = lambda width: 1.0
    server.run(controller, 64, 40)
    assert server.run(controller, 64, 1000) > 0.95 * server.best(64)


def test_loads_that_alternate_each_keep_their_width():
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK)
    for _ in range(30):
        server.run(controller, 1, 50)
        server.run(controller, 256, 50)
    few, many = server.run(controller, 1, 200), server.run(controller, 256, 200)
    assert few > 0.95 * server.best(1)
    assert many > 0.95 * server.best(256)


def test_a_draft_that_thinks_too_well_of_itself_is_scaled():
    emitted = AcceptLengths(WIDTHS, BLOCK)
    for _ in range(100):
        emitted.add(8, 4, [4.0, 6.0, 8.0, 0, 0, 0], [4.0, 8.0, 12.0, 16.0, 20.0, 20.0])
    assert emitted.mean(8) == pytest.approx(2.0)
    assert emitted.mean(16) == pytest.approx(2.5)  # half of what it believes to gain


def test_no_width_emits_more_than_it_can():
    emitted = AcceptLengths(WIDTHS, BLOCK)
    emitted.add(8, 1, [1.0, 4.0, 8.0, 0, 0, 0], [1.0, 3.0, 5.0, 9.0, 20.0, 40.0])
    assert emitted.mean(64) == BLOCK
    assert emitted.mean(1) == 1.0


def test_a_new_batch_size_begins_with_what_its_neighbours_have_measured():
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK)
    for bs in (1, 2, 4, 8, 16, 64, 128):
        server.run(controller, bs, 200)
    for bs in (32, 96, 256):
        start = server.run(controller, bs, 12)
        assert start > 0.9 * server.best(bs), f"{bs} requests"


def test_a_cost_needs_samples_and_outliers_do_not_move_it():
    cost = RoundCost(claimed=5.0)
    cost.add(1.0, at=0)
    cost.add(1.1, at=1)
    assert cost.seconds == 5.0
    cost.add(90.0, at=2)
    assert cost.seconds == 1.1
    cost.measure_anew()
    assert cost.seconds == 1.1 and not cost.is_measured


def test_classes_cover_every_batch():
    assert [batch_class(bs) for bs in (1, 5, 8, 9, 1024, 5000)] == [1, 6, 8, 12, 1024, 1024]
    assert list(BATCH_CLASSES) == sorted(BATCH_CLASSES)


def test_measured_costs_are_those_of_a_later_start():
    server = SimulatedServer(memory_bound, saturating)
    controller = WidthController(WIDTHS, BLOCK)
    server.run(controller, 8, 300)
    costs = controller.costs()
    assert costs[8, 1] == pytest.approx(memory_bound(8, 1), rel=0.06)
    later = WidthController(WIDTHS, BLOCK, costs)
    assert later.costs() == {}, "a claim is no measurement"
    assert later.summary()["batch_classes"] == {}
