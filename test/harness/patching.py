"""Small queues against small upstream files, for tests of the patch engine."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from patches.apply import patch_sources
from patches.header import parse_header
from patches.series import Patch
from patches.transforms import Edit, Present

FILE = "sglang/module.py"
VERSION = Version("1.0")
HEADER = """\
Description: Make it right
  because it was wrong.
Origin: vendor
Forwarded: no, nobody asked
Touches: {touches}
Applies-To: {applies_to}
Remove-When: upstream does it
Last-Update: 2026-11-30
"""


def header_text(touches: str = FILE, applies_to: str = ">=1.0") -> str:
    """A correct header; `touches` may go on with further `Touches:` lines."""
    return HEADER.format(touches=touches, applies_to=applies_to)


def make_patch(*edits: Edit, name: str = "one", landed: tuple[Present, ...] = (), applies_to: str = ">=1.0") -> Patch:
    """A patch of `edits` with a correct header."""
    return Patch(name, parse_header(header_text(applies_to=applies_to), name), tuple(edits), landed)


def apply_to(source: str, *patches: Patch) -> str:
    """The upstream file FILE with content `source`, patched; without the notice line that names the patches."""
    patched = patch_sources(patches, VERSION, lambda file: source.encode() if file == FILE else None)
    lines = patched[FILE].decode().splitlines(keepends=True)
    notices = [line for line in lines if line.startswith("# Modified by the dflash fork, patches: ")]
    assert len(notices) == 1 and notices[0] in lines[:2]
    lines.remove(notices[0])
    return "".join(lines)


def edited(source: str, *edits: Edit) -> str:
    """`source` (indented as in the test) with one patch of `edits` applied."""
    return apply_to(text(source), make_patch(*edits))


def text(source: str) -> str:
    """`source` without the indent and the first line break that it has in a test."""
    return textwrap.dedent(source).lstrip("\n")


def write_queue(folder: Path, queue: Mapping[str, str], series: str | None = None) -> Path:
    """A folder `patches` in `folder` with the queue files `queue` (name: content) and a series that lists them."""
    patches = folder / "patches"
    (patches / "queue").mkdir(parents=True)
    for name, content in queue.items():
        (patches / "queue" / f"{name}.py").write_text(content)
    (patches / "series").write_text("\n".join(queue) + "\n" if series is None else series)
    return patches


def queue_file(edits: str, touches: str = FILE, applies_to: str = ">=1.0", landed: str = "") -> str:
    """The content of a queue file with the given EDITS and LANDED expressions."""
    lines = [f'"""{header_text(touches, applies_to)}"""', "from patches.transforms import *", f"EDITS = ({edits},)"]
    return "\n".join([*lines, f"LANDED = ({landed},)" if landed else "", ""])
