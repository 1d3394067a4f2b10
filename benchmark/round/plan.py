"""What to measure, and the servers that it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from benchmark.sweep.config import Flag
from benchmark.sweep.plan import digest_of
from sglang.srt.speculative.draft_tree.width_controller import batch_class

from .shapes import BLOCK_SIZE, Shape
from .table import SCHEMA

PROBE_TOKENS = 4  # behind these, a server has captured, cached and warmed up what a cell needs
LEAST_ROUNDS, MOST_ROUNDS = 8, 128
MOST_EMITTED = 256  # tokens of a request in a cell with a forced accept length above 1
_ROUNDS_IN_FLIGHT = 2  # whose nodes have room beside the tokens that a cell emits


class Cell(NamedTuple):
    """What one row is about."""

    width: int | None
    """None: the server chooses per round."""
    batch: int
    accept_length: float = 1.0
    """That acceptance is forced to."""

    @property
    def emitted(self) -> float:
        """Tokens that a round emits per request; of the server's choices, by a tree that is wide enough."""
        return self.accept_length if self.width is None else min(self.accept_length, self.width)

    @property
    def most_rounds(self) -> int:
        """Rounds behind one figure, at most."""
        return MOST_ROUNDS if self.emitted <= 1 else min(MOST_ROUNDS, int(MOST_EMITTED / self.emitted))


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
    accept_lengths: Sequence[float] = ()
    """Above 1: at each all widths are measured once more, and the server's own choice of them."""

    def cells(self) -> list[Cell]:
        """Every cell, in order: a run that is cut short has the first widths at every batch."""
        found = [Cell(*each) for each in product(self.widths, self.batches)]
        for length in self.accept_lengths:
            chosen = [*(width for width in self.widths if width > 1), None]
            found += [Cell(*each, length) for each in product(chosen, self.batches)]
        return [cell for cell in found if (cell.width or 1) * cell.batch <= self.most_tokens]

    def key(self, width: int | None, batch: int | None, accept_length: float = 1.0) -> tuple:
        return self.shape.name, self.shape.layers, width, batch, self.context, accept_length

    def is_plain(self, width: int | None) -> bool:
        """Whether ``width`` is measured by a server without speculation."""
        return width == 1 and (self.plain_server or max(self.widths) == 1)

    def digest(self, width: int | None) -> str:
        """Of everything that changes the numbers of this width, the machine aside."""
        asked = {"config": self.shape.config, "flags": self.flags, "graphs": self.gpu_memory_mib is not None}
        if width is None:
            asked["widths"] = sorted(self.widths)
        return digest_of({**asked, "seed": self.seed, "plain": self.is_plain(width), "schema": SCHEMA})

    def servers(self, cells: Sequence[Cell]) -> list["Server"]:
        """One for all ``cells``, or two where width 1 has its own."""
        plain = [cell for cell in cells if self.is_plain(cell.width)]
        trees = [cell for cell in cells if not self.is_plain(cell.width)]
        found = [Server((1,), tuple(plain), self.context, self.most_tokens)] if plain else []
        if trees:
            widths = {1, *(cell.width for cell in trees if cell.width)}
            if any(cell.width is None for cell in trees):
                widths |= set(self.widths)
            if widths == {1}:  # all others are measured; a server that chooses has at least two
                widths.add(min(width for width in self.widths if width > 1))
            found.append(Server(tuple(sorted(widths)), tuple(trees), self.context, self.most_tokens))
        return found


@dataclass(frozen=True)
class Server:
    """One server: the widths that its rounds may have, ascending, and the cells that it is for.

    Width 1 alone is a server without speculation.
    """

    widths: tuple[int, ...]
    cells: tuple[Cell, ...]
    context: int
    limit: int
    """Most tokens of a round."""

    @property
    def speculates(self) -> bool:
        return self.widths != (1,)

    @property
    def name(self) -> str:
        return "widths" if self.speculates else "plain"

    @property
    def batches(self) -> list[int]:
        return sorted({cell.batch for cell in self.cells})

    def most_tokens(self) -> int:
        """Tokens of the largest round, as the server counts them: by classes of batch sizes."""
        return max((cell.width or self._widest(cell.batch)) * batch_class(cell.batch) for cell in self.cells)

    def kv_tokens(self, batch: int) -> int:
        """Tokens of KV that a cell of this batch needs; a round of any width reserves what the widest one writes."""
        widest = max(self.widths[-1], BLOCK_SIZE) if self.speculates else 1
        emitted = MOST_EMITTED if any(cell.emitted > 1 for cell in self.cells) else MOST_ROUNDS
        return batch * (self.context + PROBE_TOKENS + emitted + _ROUNDS_IN_FLIGHT * widest)

    def _widest(self, batch: int) -> int:
        """What the server may choose for a batch of this size."""
        return max(width for width in self.widths if width == 1 or width * batch <= self.limit)
