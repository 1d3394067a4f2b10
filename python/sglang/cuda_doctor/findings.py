"""From facts to findings. A finding says what is wrong, and ends with a command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from .facts import Facts


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should know.

    ``severity`` is "error" where serving fails or hangs until somebody acts, "note" where the server copes by itself
    or is merely slower.
    """

    name: str  # of the rule, in words with hyphens
    severity: Literal["error", "note"]
    what: str
    fix: str

    def __post_init__(self) -> None:
        if not self.what.strip() or not self.fix.strip():
            raise ValueError(f"finding {self.name!r}: what is wrong and what mends it are both needed")


Rule = Callable[[Facts], Iterator[Finding]]
ANYWHERE: set[Rule] = set()
"""Rules that are asked on a machine without a GPU, too; all others may rely on one."""


def anywhere(rule: Rule) -> Rule:
    """Decorates a rule that needs no GPU."""
    ANYWHERE.add(rule)
    return rule


def diagnose(facts: Facts) -> list[Finding]:
    """All findings about a machine, errors first."""
    from . import gpu_rules, peer_rules, software_rules, toolchain_rules

    tables = (gpu_rules, toolchain_rules, software_rules, peer_rules)
    rules = [rule for table in tables for rule in table.RULES if facts.gpus or rule in ANYWHERE]
    found = [finding for rule in rules for finding in rule(facts)]
    return sorted(found, key=lambda finding: finding.severity != "error")
