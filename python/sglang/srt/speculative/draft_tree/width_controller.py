"""Which verify width emits the most tokens per second: measured round costs against the accept length of each width.

A round of width w costs seconds, which depend on the batch, and emits tokens, which depend on the draft. Both are
measured while serving. The output of a server never depends on its widths, so that trying one costs time alone.

    cost       median of the last intervals between two rounds alike, per class of batch sizes and width; until there
               are some, what the last start measured, or what as many tokens cost in other classes
    emitted    running mean per width. A tree holds every smaller one, its first nodes, so that one verified tree says
               what all smaller ones would have accepted; for larger ones the draft's own probabilities are scaled
    choice     the greatest ratio. It changes for a gain of `HYSTERESIS` and more
    trials     a few rounds of another width: of one not measured yet that could win, at once; later, now and then,
               of one whose figures are old, so that a draft that has become better is seen, and a cost that was wrong
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

HYSTERESIS = 1.03
SAMPLES = 3  # intervals that make a cost
KEPT_SAMPLES = 9
TRIAL_ROUNDS = 16  # after so many rounds a trial ends, measured or not
FIRST_PERIOD, LAST_PERIOD = 64, 1024  # rounds between trials; doubled by each that changes nothing
HORIZON = 128.0  # requests that the running means remember
FORGET_PER_PLAIN_ROUND = 0.995  # a plain round says nothing of the draft, and what is known grows old
KNOWN_REQUESTS = 8.0  # with fewer left in the means, anything may be true of the draft
# A cost from an earlier run or another class may be wrong by this factor, and is tried before it rules a width out.
CLAIM_DOUBT = 2.0
# What a width may gain over its estimate, as a factor of the accepted drafts, when nothing newer is known.
ESTIMATE_DOUBT = 1.3

BATCH_CLASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def batch_class(bs: int) -> int:
    """The class that a batch of `bs` requests belongs to: the least of BATCH_CLASSES that holds it."""
    return BATCH_CLASSES[min(bisect_left(BATCH_CLASSES, bs), len(BATCH_CLASSES) - 1)]


class RoundCost:
    """Seconds of a round of one width in one class of batch sizes."""

    def __init__(self, claimed: float | None = None) -> None:
        self._samples: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self.seconds = claimed  # read several times a round, so computed once a sample
        self.measured_at = -1  # the round of the class

    def add(self, seconds: float, at: int) -> None:
        self._samples.append(seconds)
        self.measured_at = at
        if self.is_measured:
            self.seconds = median(self._samples)

    def measure_anew(self) -> None:
        """The figure becomes a claim, until there are samples again."""
        self._samples.clear()

    @property
    def is_measured(self) -> bool:
        return len(self._samples) >= SAMPLES


class AcceptLengths:
    """Running mean of the tokens that a request emits in a round, for every width.

    Args:
        widths: ascending.
        path_length: the most that one round can emit.
    """

    def __init__(self, widths: Sequence[int], path_length: int) -> None:
        self.widths = tuple(widths)
        self._bounds = [float(min(width, path_length)) for width in widths]
        self._sums = [0.0] * len(widths)
        self._weight = 0.0

    def add(self, width: int, requests: int, emitted: Sequence[float], expected: Sequence[float]) -> None:
        """One round.

        Args:
            width: nodes that were verified.
            requests: of the batch.
            emitted: per width up to `width`, tokens of all requests together that a tree of that width would have
                emitted; what stands beyond is not read.
            expected: the same per width for the trees that were built, by the draft's own probabilities.
        """
        keep = max(0.0, 1.0 - requests / HORIZON)
        at = self.widths.index(width)
        believed = expected[at] - requests
        scale = min(ESTIMATE_DOUBT, (emitted[at] - requests) / believed) if believed > 0 else 0.0
        for index in range(len(self.widths)):
            tokens = emitted[index] if index <= at else emitted[at] + scale * max(0.0, expected[index] - expected[at])
            self._sums[index] = self._sums[index] * keep + min(tokens, requests * self._bounds[index])
        self._weight = self._weight * keep + requests

    def age(self) -> None:
        """A round of plain decoding went by."""
        self._sums = [total * FORGET_PER_PLAIN_ROUND for total in self._sums]
        self._weight *= FORGET_PER_PLAIN_ROUND

    def mean(self, width: int) -> float | None:
        """Tokens per request and round; None while nothing is known."""
        if width == 1:
            return 1.0
        return self._sums[self.widths.index(width)] / self._weight if self._weight else None

    def bound(self, width: int) -> float:
        """What the mean could be at best, given what is known and not too old."""
        most, mean = self._bounds[self.widths.index(width)], self.mean(width)
        if mean is None or self._weight < KNOWN_REQUESTS:
            return most
        return min(most, 1.0 + ESTIMATE_DOUBT * (mean - 1.0))


class _BatchClass:
    """What is known of one class of batch sizes, and what is being tried there."""

    def __init__(self, widths: Sequence[int], claims: dict[int, float | None]) -> None:
        self.costs = {width: RoundCost(claims.get(width)) for width in widths}
        self.current = widths[0]
        self.round = 0
        self.trial: int | None = None
        self.trial_ends = 0
        self.trials = 0
        self.next_trial = FIRST_PERIOD
        self.period = FIRST_PERIOD


class WidthController:
    """The choice of one server; it runs on one rank.

    Args:
        widths: nodes of a request that a verify may see, root included, ascending; 1 is a step of plain decoding.
        widths_for: those of them that a batch size may use.
        path_length: the most tokens that a request can emit in a round.
        claims: seconds by (class of batch sizes, width) that an earlier run of the same server measured.
    """

    def __init__(
        self,
        widths: Sequence[int],
        path_length: int,
        claims: dict[tuple[int, int], float] | None = None,
        widths_for: Callable[[int, Sequence[int]], Sequence[int]] = lambda bs, widths: widths,
    ) -> None:
        self.widths = tuple(widths)
        self.path_length = path_length
        self._widths_for = widths_for
        self.accept_lengths = AcceptLengths(widths, path_length)
        self._claims = claims or {}
        self._classes: dict[int, _BatchClass] = {}

    def add_cost(self, bs: int, width: int, seconds: float) -> None:
        """A round of `bs` requests and this width followed on one like it after `seconds`."""
        known = self._class(batch_class(bs))
        known.costs[width].add(seconds, known.round)

    def add_emitted(self, width: int, requests: int, emitted: Sequence[float], expected: Sequence[float]) -> None:
        """See AcceptLengths.add."""
        self.accept_lengths.add(width, requests, emitted, expected)

    def after_round(self, bs: int, width: int) -> int:
        """A round of `bs` requests went by; returns the width that the next one of this class should have."""
        known = self._class(batch_class(bs))
        known.round += 1
        if width == 1:
            self.accept_lengths.age()
        if known.trial is not None:
            if not known.costs[known.trial].is_measured and known.round < known.trial_ends:
                return known.trial
            known.trial = None
            self._choose(known, after_trial=True)
        else:
            self._choose(known)
        trial = self._trial(known)
        if trial is None:
            return known.current
        known.costs[trial].measure_anew()
        known.trial, known.trials = trial, known.trials + 1
        known.trial_ends = known.round + TRIAL_ROUNDS
        return trial

    def speed(self, bs: int, width: int) -> float | None:
        """Tokens per second and request; None where cost or accept length are unknown."""
        return self._speed(self._class(batch_class(bs)), width)

    def costs(self) -> dict[tuple[int, int], float]:
        """Seconds by (class of batch sizes, width), measured ones only."""
        return {
            (size, width): cost.seconds
            for size, known in sorted(self._classes.items())
            for width, cost in known.costs.items()
            if cost.seconds and cost.measured_at >= 0
        }

    def summary(self) -> dict[str, object]:
        """The choice and its reasons, for people to read."""
        return {
            "emitted_by_width": {str(width): self.accept_lengths.mean(width) for width in self.widths},
            "batch_classes": {
                str(size): {
                    "width": known.current,
                    "trial": known.trial,
                    "milliseconds_by_width": {
                        str(width): 1e3 * cost.seconds for width, cost in known.costs.items() if cost.seconds
                    },
                }
                for size, known in sorted(self._classes.items())
            },
        }

    def _class(self, size: int) -> _BatchClass:
        if size not in self._classes:
            widths = self._widths_for(size, self.widths)
            claims = {width: self._claims.get((size, width)) or self._estimate(size, width) for width in widths}
            self._classes[size] = _BatchClass(widths, claims)
        return self._classes[size]

    def _estimate(self, size: int, width: int) -> float | None:
        """Seconds by what rounds of as many tokens cost in other classes; a plain step is compared with its like."""
        points = sorted(
            (of * other, cost.seconds)
            for of, known in self._classes.items()
            for other, cost in known.costs.items()
            if cost.seconds is not None and (other == 1) == (width == 1)
        )
        if len(points) < 2:
            return None
        tokens = [point[0] for point in points]
        # Between the two points around it, or on through the last two; never below the first.
        at = min(max(bisect_left(tokens, size * width), 1), len(points) - 1)
        (left, low), (right, high) = points[at - 1], points[at]
        if right == left:
            return max(low, high)
        return max(points[0][1], low + (high - low) * (size * width - left) / (right - left))

    def _speed(self, known: _BatchClass, width: int) -> float | None:
        seconds, tokens = known.costs[width].seconds, self.accept_lengths.mean(width)
        return tokens / seconds if seconds and tokens is not None else None

    def _choose(self, known: _BatchClass, after_trial: bool = False) -> None:
        speeds = {width: speed for width in known.costs if (speed := self._speed(known, width)) is not None}
        if not speeds:
            return
        best = max(speeds, key=speeds.get)
        changes = best != known.current and speeds[best] > HYSTERESIS * speeds.get(known.current, 0.0)
        if changes:
            known.current, known.period = best, FIRST_PERIOD
        elif after_trial:
            known.period = min(LAST_PERIOD, 2 * known.period)
        if changes or after_trial:
            known.next_trial = known.round + known.period

    def _trial(self, known: _BatchClass) -> int | None:
        """The width to try now, if any."""
        now = self._speed(known, known.current)
        for width in known.costs:
            if known.costs[width].seconds is None and self._could_win(known, width, now):
                return width
        if known.round < known.next_trial or now is None:
            return None
        rivals = [width for width in known.costs if width != known.current and self._could_win(known, width, now)]
        if not rivals:
            known.next_trial = known.round + known.period
            return None
        if known.trials % 2:  # by turns, since the first rule alone might pass over the same width for ever
            return min(rivals, key=lambda width: known.costs[width].measured_at)
        return max(rivals, key=lambda width: self.accept_lengths.bound(width) / self._least_cost(known, width))

    def _could_win(self, known: _BatchClass, width: int, now: float | None) -> bool:
        """Whether `width` could be faster than `now` if what is not known of it turned out well."""
        return now is None or self.accept_lengths.bound(width) > now * self._least_cost(known, width)

    @staticmethod
    def _least_cost(known: _BatchClass, width: int) -> float:
        cost = known.costs[width]
        if cost.seconds is None:
            # A wider round does not cost less than a narrower one.
            return max((c.seconds for w, c in known.costs.items() if w < width and c.seconds), default=0.0)
        return cost.seconds / (1.0 if cost.is_measured else CLAIM_DOUBT)
