"""What a release does to each patch: one outcome, the reason, and the nearest candidate where a target moved."""

import ast
import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator

from patches.apply import Sources, check_compiles, check_overlap, plan
from patches.errors import PatchError, TargetMoved
from patches.release import Release
from patches.series import Patch
from patches.syntax import Change
from patches.transforms import Present

Placed = tuple[str, Patch, Change]  # a planned change with its file and its patch
LOOKED_INTO = 20  # files, in the search for a definition that moved
APPLIES, LANDED = "applies", "already upstream"


@dataclasses.dataclass(frozen=True)
class Verdict:
    patch: Patch
    outcome: str  # applies, already upstream, target moved, match count wrong or broken
    in_range: bool  # whether the release is inside the patch's Applies-To
    detail: str = ""

    @property
    def needs_hand(self) -> bool:
        """Whether somebody has to look at the patch before the fork can stand on the release."""
        return self.outcome != LANDED and not (self.outcome == APPLIES and self.in_range)


def judge(patches: Iterable[Patch], release: Release) -> list[Verdict]:
    """One verdict for each patch; nothing is written.

    A patch is tried on the release even where its Applies-To leaves it out: that says whether widening it would do.
    """
    sources = Sources(release.read)
    verdicts: list[Verdict] = []
    fitting: dict[bool, list[Placed]] = {True: [], False: []}  # by whether in range
    for patch in patches:
        in_range = patch.header.applies_to.contains(release.version, prereleases=True)
        outcome, detail = APPLIES, ""
        try:
            if patch.landed and all(_holds(sign, sources) for sign in patch.landed):
                outcome = LANDED
            else:
                fitting[in_range] += _place(patch, sources, fitting[in_range])
                detail = "" if in_range else f"outside Applies-To {patch.header.applies_to}: read and widen it"
        except TargetMoved as error:
            near = nearest(release, sources, patch, error.target)
            outcome, detail = error.outcome, f"{error.found}; nearest: {near or 'nothing alike'}"
        except PatchError as error:
            outcome, detail = error.outcome, error.found
        verdicts.append(Verdict(patch, outcome, in_range, detail))
    faults = {**_faults(fitting[True], sources), **_faults(fitting[False], sources)}
    return [
        dataclasses.replace(verdict, outcome=PatchError.outcome, detail=faults[verdict.patch.name])
        if verdict.patch.name in faults
        else verdict
        for verdict in verdicts
    ]


def _holds(sign: Present, sources: Sources) -> bool:
    source = sources.get(sign.file)
    return source is not None and sign.holds(source)


def _place(patch: Patch, sources: Sources, fitting: list[Placed]) -> list[Placed]:
    """The changes of `patch`; raises PatchError when a target is amiss or belongs to one of the fitting patches."""
    changed = []
    for file, changes in plan(patch, sources).items():
        others = [(other, change) for place, other, change in fitting if place == file]
        check_overlap(file, [*others, *((patch, change) for change in changes)])
        changed += [(file, patch, change) for change in changes]
    return changed


def _faults(fitting: list[Placed], sources: Sources) -> dict[str, str]:
    """The patches whose files do not compile when patched, with the reason: tried together, singly after a fault."""
    faults: dict[str, str] = {}
    for file in dict.fromkeys(file for file, _, _ in fitting):
        patches = list({patch.name: patch for place, patch, _ in fitting if place == file}.values())
        together = _fault(file, patches, fitting, sources)
        if together is not None:
            alone = {patch.name: fault for patch in patches if (fault := _fault(file, [patch], fitting, sources))}
            faults |= alone or {patch.name: together for patch in patches}
    return faults


def _fault(file: str, patches: list[Patch], fitting: list[Placed], sources: Sources) -> str | None:
    changes = [change for place, patch, change in fitting if place == file and patch in patches]
    imports = [line for patch in patches for edit in patch.edits if edit.file == file and (line := edit.import_line())]
    try:
        check_compiles(file, sources.get(file).apply(changes, imports, "#"), [patch.name for patch in patches])
    except PatchError as error:
        return error.found
    return None


def nearest(release: Release, sources: Sources, patch: Patch, target: str) -> str | None:
    """The name in `release` that is most like the lost `target` of `patch`: `file :: name`, or a file.

    Where a definition went is looked for by its last name in all of the release, and by likeness in its old file.
    """
    scopes = [(edit.file, edit.scope) for edit in patch.edits if edit.scope and target in (edit.file, edit.scope)]
    for file, scope in scopes:
        source = sources.get(file)
        if source is None or scope not in source.definitions:
            wanted = f"{file} :: {scope}"
            near = _most_alike(wanted, _defined_elsewhere(release, file, scope), cutoff=0.7)
            near = near or _most_alike(wanted, [f"{file} :: {name}" for name in source.definitions] if source else [])
            if near:
                return near
    files = [name for name in release.files if name.endswith(".py")]
    return None if target in release.files else _most_alike(target, files, cutoff=0.7)


def _defined_elsewhere(release: Release, file: str, scope: str) -> list[str]:
    """`file :: name` of the definitions with the last name of `scope`, in the files with paths most like `file`."""
    leaf = scope.rsplit(".", 1)[-1]
    if leaf.startswith("__"):
        return []  # every other class has one
    definition = re.compile(rb"^[ \t]*(?:async +)?(?:def|class) +" + re.escape(leaf.encode()) + rb"\b", re.MULTILINE)
    names = (name for name in sorted(release.files) if name.endswith(".py") and name.startswith("sglang/srt/"))
    holding = [name for name in names if definition.search(release.read(name))]
    holding.sort(key=lambda name: difflib.SequenceMatcher(None, file, name).ratio(), reverse=True)
    found = []
    for name in holding[:LOOKED_INTO]:
        qualified = _qualified_names(ast.parse(release.read(name)), "")
        found += [f"{name} :: {text}" for text in qualified if text.rsplit(".", 1)[-1] == leaf]
    return found


def _qualified_names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name
            yield from _qualified_names(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt):
            yield from _qualified_names(child, prefix)


def _most_alike(text: str, candidates: list[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(text, sorted(set(candidates)), n=1, cutoff=cutoff)), None)
