"""The width of a server's rounds, set from outside: a plugin for servers of ``--speculative-dflash-tree-budget auto``.

Loaded into the server through upstream's plugin entry points (``environment_of_pins``). Each round then has the width
that stands in a file, which ``pin`` replaces between two cells, and the server's own choice is left out: nothing is
tried, and no cost is written to the cache that other servers read. A choice that arrives counts for batches of every
size, so that the smaller batches at the start of a request follow it, too. A width that the batch may not use ends the
server.
"""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

FILE = "ROUND_PINNED_WIDTH"  # path of the file
MOST_TOKENS = "ROUND_MOST_VERIFY_TOKENS"  # requests times width of the largest round
_NAME = "pinned-width"
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


def pin(folder: Path, width: int) -> None:
    """Rounds are of ``width`` from the second on that begins after this."""
    path = _file(folder)
    temporary = path.with_suffix(".new")
    temporary.write_text(str(width))
    temporary.replace(path)


def load() -> None:
    """Entry point, in each process of the server."""
    from sglang.srt.speculative.draft_tree import width_graphs
    from sglang.srt.speculative.draft_tree.width_choice import FollowedWidths, WidthChooser
    from sglang.srt.speculative.draft_tree.width_controller import BATCH_CLASSES

    width_graphs.MAX_VERIFY_TOKENS = int(os.environ[MOST_TOKENS])
    pinned = PinnedWidth(Path(os.environ[FILE]))

    def next_width(self: WidthChooser, bs: int, last_width: int) -> int:
        for measures in (self.clock, self.emitted):
            for _ in measures.collect():  # or they would pile up
                pass
        return pinned.of(bs, self._controller.widths)

    follow = FollowedWidths.follow

    @functools.wraps(follow)
    def follow_at_every_size(self: FollowedWidths, choice) -> None:
        follow(self, choice)
        self._followed.update(dict.fromkeys(BATCH_CLASSES, choice.width))

    WidthChooser.next_width = next_width
    FollowedWidths.follow = follow_at_every_size


class PinnedWidth:
    """What stands in ``path``, read again when the file is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._width = 0

    def of(self, bs: int, widths: Sequence[int]) -> int:
        """The width of rounds of ``bs`` requests, one of the server's ``widths``. Raises PinnedWidthError."""
        from sglang.srt.speculative.draft_tree.width_controller import batch_class
        from sglang.srt.speculative.draft_tree.width_graphs import widths_for

        status = os.stat(self._path)
        version = status.st_mtime_ns, status.st_ino
        if version != self._version:
            self._version, self._width = version, int(self._path.read_text())
        allowed = widths_for(batch_class(bs), widths)
        if self._width not in allowed:
            raise PinnedWidthError(
                f"a width of {self._width} is pinned for {bs} requests, which may use {' '.join(map(str, allowed))}"
            )
        return self._width


def _file(folder: Path) -> Path:
    return folder.resolve() / "width"
