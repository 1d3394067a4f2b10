"""One order of penalizers for every process."""

from __future__ import annotations

from collections.abc import Iterable


def additive_first(penalizers: Iterable[type]) -> list[type]:
    """The penalizer classes that add, by name, then those that scale, in the order in which they are to be applied.

    Upstream hands over a set of classes, which iterates by address: without overlap scheduling, adding and scaling
    changed places from one start to the next, and with them the result.
    """
    return sorted(penalizers, key=lambda penalizer: (penalizer.is_multiplicative, penalizer.__name__))
