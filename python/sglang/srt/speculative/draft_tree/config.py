"""What the server arguments say about draft trees, as one checked object."""

from __future__ import annotations

from dataclasses import dataclass

from sglang.srt.runtime_context import get_spec


@dataclass(frozen=True)
class DraftTreeConfig:
    """Shape of the trees of one server.

    budget: draft nodes of a tree, the root excluded.
    topk: candidates per depth that a tree is built from.
    block_size: positions of one draft pass, the root included; candidates exist at `block_size - 1` depths.
    widths: what a round may verify per request, root included, ascending; one width is the fixed one, 1 + budget.
    """

    budget: int
    topk: int
    block_size: int
    widths: tuple[int, ...]

    @property
    def width(self) -> int:
        """Tokens of a request that one verify sees at most: the root and the draft nodes."""
        return 1 + self.budget

    @property
    def path_length(self) -> int:
        """Nodes on the longest possible path, the root included; the most tokens that one round can emit."""
        return min(self.block_size, self.width)


def draft_tree_config() -> DraftTreeConfig | None:
    """The configuration of this process, from its resolved arguments; None where drafts are verified as a chain."""
    spec = get_spec()
    if not spec.speculative_dflash_tree_budget:
        return None
    budget = int(spec.speculative_dflash_tree_budget)
    return DraftTreeConfig(
        budget=budget,
        topk=int(spec.speculative_dflash_tree_topk),
        block_size=int(spec.speculative_dflash_block_size),
        widths=tuple(spec.speculative_dflash_widths or (1 + budget,)),
    )
