"""The width of a server's rounds, set from outside: a plugin for servers of ``--speculative-dflash-tree-budget auto``.

Loaded into the server through upstream's plugin entry points (``environment_of_pins``). Each round then has the width
that stands in a file, which ``pin`` replaces between two cells, and the server's own choice is left out: nothing is
tried. A choice that arrives counts for batches of every size, so that the smaller batches at the start of a request
follow it, too. A width that the batch may not use ends the server.

Where the file leaves the choice to the server, it chooses as one that was started anew, with the round costs that it
has measured so far. No cost is written to the cache that other servers read. Beside the width stands the accept length
that rounds are forced to from then on.
"""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

FILE = "ROUND_PINNED_WIDTH"  # path of the file
MOST_TOKENS = "ROUND_MOST_VERIFY_TOKENS"  # requests times width of the largest round
_NAME = "pinned-width"
_AUTO = "auto"
_ROOT = Path(__file__).parents[2]


class PinnedWidthError(RuntimeError):
    """The width in the file cannot be that of the round."""


def environment_of_pins(folder: Path, most_tokens: int) -> dict[str, str]:
    """Environment of a server that reads the width of ``folder``, which gets the metadata of the entry point."""
    info = folder / "pinned_width-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{_NAME} = {__name__}:load\n")
    paths = [str(folder.resolve()), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), FILE: str(_file(folder)), MOST_TOKENS: str(most_tokens)}


def pin(folder: Path, width: int | None, accept_length: float = 1.0) -> None:
    """Rounds are of ``width``, or of the server's choice, from the second on that begins after this."""
    path = _file(folder)
    temporary = path.with_suffix(".new")
    temporary.write_text(f"{width or _AUTO} {accept_length}")
    temporary.replace(path)


def load() -> None:
    """Entry point, in each process of the server."""
    from sglang.srt.speculative.draft_tree import forced_acceptance, width_graphs
    from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths, WidthChooser
    from sglang.srt.speculative.draft_tree.width_controller import BATCH_CLASSES, WidthController

    width_graphs.MAX_VERIFY_TOKENS = int(os.environ[MOST_TOKENS])
    pinned = PinnedWidth(Path(os.environ[FILE]))
    choose, follow, of = WidthChooser.next_width, FollowedWidths.follow, FollowedWidths.of
    fresh_at, costs = None, {}

    @functools.wraps(choose)
    def next_width(self: WidthChooser, bs: int, last_width: int) -> int:
        nonlocal fresh_at
        width = pinned.of(bs, self._controller.widths)
        if width is not None:
            for measures in (self.clock, self.emitted):
                for _ in measures.collect():  # or they would pile up
                    pass
            return width
        if fresh_at != pinned.version:
            fresh_at, known = pinned.version, self._controller
            costs.update(known.costs())
            self._controller = WidthController(known.widths, known.path_length, dict(costs), width_graphs.widths_for)
            self._costs_file.is_due = lambda: False
        return choose(self, bs, last_width)

    @functools.wraps(follow)
    def follow_at_every_size(self: FollowedWidths, choice) -> None:
        follow(self, choice)
        if not pinned.is_auto():
            self._followed.update(dict.fromkeys(BATCH_CLASSES, choice.width))

    @functools.wraps(of)
    def of_with_forced_length(self: FollowedWidths, bs: int) -> int:
        forced_acceptance.SIMULATE_ACC_LEN = pinned.accept_length()
        return of(self, bs)

    WidthChooser.next_width = next_width
    FollowedWidths.follow = follow_at_every_size
    FollowedWidths.of = of_with_forced_length


class PinnedWidth:
    """What stands in ``path``, read again when the file is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.version: tuple[int, int] | None = None
        self._width: int | None = 0
        self._accept_length = 1.0

    def of(self, bs: int, widths: Sequence[int]) -> int | None:
        """The width of rounds of ``bs`` requests, one of the server's ``widths``, or None where the server chooses.

        Raises PinnedWidthError.
        """
        from sglang.srt.speculative.draft_tree.width_controller import batch_class
        from sglang.srt.speculative.draft_tree.width_graphs import widths_for

        self._read()
        allowed = widths_for(batch_class(bs), widths)
        if self._width is not None and self._width not in allowed:
            raise PinnedWidthError(
                f"a width of {self._width} is pinned for {bs} requests, which may use {' '.join(map(str, allowed))}"
            )
        return self._width

    def is_auto(self) -> bool:
        """Whether the server chooses."""
        self._read()
        return self._width is None

    def accept_length(self) -> float:
        """What acceptance is forced to."""
        self._read()
        return self._accept_length

    def _read(self) -> None:
        status = os.stat(self._path)
        version = status.st_mtime_ns, status.st_ino
        if version != self.version:
            width, length = self._path.read_text().split()
            self._width, self._accept_length = None if width == _AUTO else int(width), float(length)
            self.version = version


def _file(folder: Path) -> Path:
    return folder.resolve() / "width"
