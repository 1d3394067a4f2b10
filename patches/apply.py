"""Applies the queue to an upstream tree: all of it, or nothing and one error.

patched = patch_sources(patches, version, read)     pure: {file: new content}
patch_tree(tree, patches, version)                  the same on a folder, once: a second time changes nothing
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.version import Version

from patches.errors import PatchError, TargetMoved
from patches.series import Patch
from patches.syntax import Change, SourceFile

RECORD = "sglang/fork_changes.json"  # in the tree: a hash of the queue, and of each file as patched


def applicable(patches: Iterable[Patch], version: Version) -> list[Patch]:
    """The patches whose Applies-To holds for the upstream release `version`."""
    return [patch for patch in patches if patch.header.applies_to.contains(version, prereleases=True)]


class Sources:
    """The upstream files that were asked for, each parsed once. `read` returns a file's bytes or None."""

    def __init__(self, read: Callable[[str], bytes | None]):
        self._read = read
        self._parsed: dict[str, SourceFile | None] = {}

    def get(self, path: str) -> SourceFile | None:
        if path not in self._parsed:
            content = self._read(path)
            self._parsed[path] = None if content is None else SourceFile(path, content)
        return self._parsed[path]

    def need(self, path: str, where: str) -> SourceFile:
        source = self.get(path)
        if source is None:
            raise TargetMoved(where, f"upstream has no file {path}", "find where its content went", path)
        return source


def plan(patch: Patch, sources: Sources) -> dict[str, list[Change]]:
    """What `patch` would change, by file; raises PatchError when a target is not as the patch describes it."""
    changes: dict[str, list[Change]] = {file: [] for file in patch.files}
    for edit in patch.edits:
        changes[edit.file] += edit.plan(sources.need(edit.file, patch.label), patch.label)
    return changes


def patch_sources(patches: Iterable[Patch], version: Version, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """The new content of every file that the queue changes, in the order of first touch.

    `read` returns the pristine content of an upstream file, None where there is none. Raises PatchError when a target
    is gone, matches otherwise than once, or is touched by two patches.
    """
    sources = Sources(read)
    planned: dict[str, list[tuple[Patch, Change]]] = {}
    imports: dict[str, list[str]] = {}
    touching: dict[str, list[str]] = {}
    for patch in applicable(patches, version):
        for file, changes in plan(patch, sources).items():
            planned.setdefault(file, []).extend((patch, change) for change in changes)
            touching.setdefault(file, []).append(patch.name)
        for edit in patch.edits:
            imports.setdefault(edit.file, []).extend(filter(None, [edit.import_line()]))
    result = {}
    for file, pairs in planned.items():
        check_overlap(file, pairs)
        notice = f"# Modified by the dflash fork, patches: {', '.join(touching[file])}; see sglang/FORK_CHANGES.md."
        result[file] = sources.get(file).apply([change for _, change in pairs], imports[file], notice)
        check_compiles(file, result[file], touching[file])
    return result


def check_compiles(file: str, content: bytes, names: list[str]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # upstream's own
            compile(content, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        found = f"does not compile when patched: {error.msg}, line {error.lineno}"
        raise PatchError(file, found, f"correct {' or '.join(names)}") from None


def check_overlap(file: str, pairs: list[tuple[Patch, Change]]) -> None:
    """Raises PatchError when two edits touch one construct: what is replaced belongs to one edit alone."""
    replaced: dict[int, tuple[Patch, Change]] = {}
    places: dict[tuple, Patch] = {}

    def clash(one: Patch, two: Patch) -> PatchError:
        both = " and ".join(sorted({one.name, two.name}))
        return PatchError(file, f"{both} touch the same construct", "make one edit of them, in one patch")

    for patch, change in pairs:
        if change.kind == "replace":
            if id(change.node) in replaced:
                raise clash(replaced[id(change.node)][0], patch)
            replaced[id(change.node)] = (patch, change)
        elif places.setdefault((id(change.node), change.kind, change.place), patch) is not patch:
            raise clash(places[id(change.node), change.kind, change.place], patch)
    for patch, change in pairs:
        # a statement put beside a replaced one is no clash: both are well defined
        above = change.trail[:-1] if change.kind != "inside" else change.trail
        for node in above:
            if id(node) in replaced and replaced[id(node)][1] is not change:
                raise clash(replaced[id(node)][0], patch)


def patch_tree(tree: Path, patches: list[Patch], version: Version) -> list[str]:
    """Applies the queue to the upstream tree in the folder `tree`, and returns the files that it changed.

    A tree that already has this queue stays as it is and the list is empty. Raises PatchError, with nothing
    written, when the tree has another queue or was edited since.
    """
    record_path = tree / RECORD
    if record_path.is_file():
        record = json.loads(record_path.read_bytes())
        for file, digest in record["files"].items():
            if not (tree / file).is_file() or _digest((tree / file).read_bytes()) != digest:
                raise PatchError(str(tree / file), "was edited after it was patched", "start from the pristine wheel")
        if record["queue"] != queue_digest(patches, version):
            raise PatchError(str(tree), "holds another state of the queue", "start from the pristine wheel")
        return []

    def read(file: str) -> bytes | None:
        return (tree / file).read_bytes() if (tree / file).is_file() else None

    patched = patch_sources(patches, version, read)
    record = {"queue": queue_digest(patches, version), "files": {file: _digest(data) for file, data in patched.items()}}
    # the record first: work that is cut off below is then refused as edited, and never taken for pristine
    write_atomic(record_path, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
    for file, content in patched.items():
        write_atomic(tree / file, content)
    return list(patched)


def queue_digest(patches: Iterable[Patch], version: Version) -> str:
    """A hash of everything in the queue that decides what it writes."""
    return _digest(repr([(patch.name, patch.edits) for patch in applicable(patches, version)]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path, content: bytes) -> None:
    """Writes `content` to `path` so that no other moment shows a part of it; the mode of an old file stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    if path.exists():
        temporary.chmod(path.stat().st_mode)
    os.replace(temporary, path)
