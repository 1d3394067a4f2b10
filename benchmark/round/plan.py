"""What to measure, and the servers that it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmark.sweep.config import Flag
from benchmark.sweep.plan import digest_of
from sglang.srt.speculative.draft_tree.width_controller import batch_class

from .shapes import BLOCK_SIZE, Shape
from .table import SCHEMA

PROBE_TOKENS = 4  # behind these, a server has captured, cached and warmed up what a cell needs
LEAST_ROUNDS, MOST_ROUNDS = 8, 128
_ROUNDS_IN_FLIGHT = 2  # whose nodes have room beside the tokens that a cell emits

Cell = tuple[int, int]  # width, batch


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    shape: Shape
    widths: Sequence[int]
    batches: Sequence[int]
    context: int
    bandwidth_gb_s: float
    bandwidth_source: str
    repeats: int = 3
    cell_seconds: float = 2.0
    seed: int = 1
    flags: dict[str, Flag] = field(default_factory=dict)
    """Of the server, as the user gave them."""
    gpu_memory_mib: int | None = None
    """Of the smallest GPU; None where rounds run without one."""
    startup_seconds: int = 1800
    most_tokens: int = 16384
    """Cells of more tokens a round are left out: their logits alone would take gigabytes."""
    plain_server: bool = False
    """Whether width 1 is measured with a server of its own, without speculation."""

    def cells(self) -> list[Cell]:
        """Width and batch of every cell, in order: a run that is cut short has the first widths at every batch."""
        return [(width, batch) for width in self.widths for batch in self.batches if width * batch <= self.most_tokens]

    def key(self, width: int, batch: int | None) -> tuple:
        return self.shape.name, self.shape.layers, width, batch, self.context

    def is_plain(self, width: int) -> bool:
        """Whether ``width`` is measured by a server without speculation."""
        return width == 1 and (self.plain_server or max(self.widths) == 1)

    def digest(self, width: int) -> str:
        """Of everything that changes the numbers of this width, the machine aside."""
        asked = {"config": self.shape.config, "flags": self.flags, "graphs": self.gpu_memory_mib is not None}
        return digest_of({**asked, "seed": self.seed, "plain": self.is_plain(width), "schema": SCHEMA})

    def servers(self, cells: Sequence[Cell]) -> list["Server"]:
        """One for all ``cells``, or two where width 1 has its own."""
        plain = [cell for cell in cells if self.is_plain(cell[0])]
        trees = [cell for cell in cells if not self.is_plain(cell[0])]
        found = [Server((1,), tuple(plain), self.context)] if plain else []
        if trees:
            widths = {1, *(width for width, _ in trees)}
            if widths == {1}:  # all others are measured; a server that chooses has at least two
                widths.add(min(width for width in self.widths if width > 1))
            found.append(Server(tuple(sorted(widths)), tuple(trees), self.context))
        return found


@dataclass(frozen=True)
class Server:
    """One server: the widths that its rounds may have, ascending, and the cells that it is for.

    Width 1 alone is a server without speculation.
    """

    widths: tuple[int, ...]
    cells: tuple[Cell, ...]
    context: int

    @property
    def speculates(self) -> bool:
        return self.widths != (1,)

    @property
    def name(self) -> str:
        return "widths" if self.speculates else "plain"

    @property
    def batches(self) -> list[int]:
        return sorted({batch for _, batch in self.cells})

    def most_tokens(self) -> int:
        """Tokens of the largest round, as the server counts them: by classes of batch sizes."""
        return max(width * batch_class(batch) for width, batch in self.cells)

    def kv_tokens(self, batch: int) -> int:
        """Tokens of KV that a cell of this batch needs; a round of any width reserves what the widest one writes."""
        widest = max(self.widths[-1], BLOCK_SIZE) if self.speculates else 1
        return batch * (self.context + PROBE_TOKENS + MOST_ROUNDS + _ROUNDS_IN_FLIGHT * widest)
