"""An upstream source file as a syntax tree: finds definitions and matches, applies changes, keeps every other byte.

All changes to a file are planned on the pristine tree and applied in one pass, so that one patch never sees the work
of another and the order of the queue cannot change what matches.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import libcst as cst

from patches.errors import MatchCountWrong, PatchError, TargetMoved
from patches.patterns import Pattern, code_of

Trail = tuple[cst.CSTNode, ...]  # the nodes from the module down to one node, that node included
Scope = cst.Module | cst.ClassDef | cst.FunctionDef
Kind = Literal["replace", "inside", "before", "after"]
_NAME_FIELDS = {"attr", "keyword", "name", "asname", "module"}  # hold names, not expressions, wherever they are names


@dataclasses.dataclass(frozen=True)
class Change:
    """One planned change at `node`, the last of `trail`.

    `replace` and `inside` hand the node to `make` and take what it returns: in place of the node, or the node with
    another body, decorator or item. `before` and `after` put the statements that `make` returns beside it.
    `place` tells apart the spots inside one node that two patches may change independently.
    """

    trail: Trail
    kind: Kind
    make: Callable[[cst.CSTNode], object]
    place: str = ""

    @property
    def node(self) -> cst.CSTNode:
        return self.trail[-1]


def fields_of(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    """The direct children of `node`, each with the field that holds it."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(child, cst.CSTNode):
                yield field.name, child


class SourceFile:
    """One upstream file, parsed once for the whole queue.

    `path` is the path inside the wheel; raises PatchError when `content` is not Python that LibCST reads.
    """

    def __init__(self, path: str, content: bytes):
        self.path = path
        try:
            self.module = cst.parse_module(content)
        except cst.ParserSyntaxError as error:
            raise PatchError(path, f"not readable: {error.message}", "check the upstream release by hand") from None
        self.definitions: dict[str, list[Trail]] = {}
        self._collect((self.module,), "")

    def _collect(self, trail: Trail, prefix: str) -> None:
        for _, child in fields_of(trail[-1]):
            below = (*trail, child)
            if isinstance(child, (cst.ClassDef, cst.FunctionDef)):
                name = prefix + child.name.value
                self.definitions.setdefault(name, []).append(below)
                self._collect((*below, child.body), f"{name}.")
            elif not isinstance(child, (cst.BaseExpression, cst.SimpleStatementLine)):
                self._collect(below, prefix)

    def find(self, name: str | None, where: str) -> Trail:
        """The trail of the definition with this qualified name, of the module for None.

        Raises TargetMoved when there is none, MatchCountWrong when there are several.
        """
        if name is None:
            return (self.module,)
        found = self.definitions.get(name, [])
        if not found:
            remedy = "see `python -m patches status` for the nearest name and change the patch"
            raise TargetMoved(where, f"{self.path} has no {name}", remedy, name)
        if len(found) > 1:
            remedy = "one definition is expected: change the patch to name another target"
            raise MatchCountWrong(where, f"{self.path} defines {name} {len(found)} times", remedy)
        return found[0]

    def search(self, scope: Trail, pattern: Pattern) -> list[Trail]:
        """Every match inside `scope`: all of a function; of a class or module only what is outside its definitions."""
        inside_function = isinstance(scope[-1], cst.FunctionDef)
        hits: list[Trail] = []

        def visit(trail: Trail) -> None:
            for field, child in fields_of(trail[-1]):
                if isinstance(child, (cst.ClassDef, cst.FunctionDef)) and not inside_function:
                    continue
                below = (*trail, child)
                if not (field in _NAME_FIELDS and isinstance(child, cst.Name)) and pattern.matches(child):
                    hits.append(below)
                visit(below)

        visit((*scope, scope[-1].body) if not isinstance(scope[-1], cst.Module) else scope)
        return hits

    def parse_statements(self, code: str, where: str) -> list[cst.BaseStatement]:
        """`code` as statements in the style (indent, newline) of this file."""
        try:
            return list(cst.parse_module(code, config=self.module.config_for_parsing).body)
        except cst.ParserSyntaxError as error:
            raise PatchError(where, f"{code!r} is not Python: {error.message}", "correct the edit") from None

    def apply(self, changes: list[Change], imports: list[str], notice: str) -> bytes:
        """The file with `changes` made, `imports` added and the comment line `notice` at its top."""
        at = self._import_index(changes)
        body = list(self.module.body)
        present = {code_of(node).strip() for node in body if _is_import(node)}
        for line in reversed(list(dict.fromkeys(imports))):
            if line not in present:
                body[at:at] = self.parse_statements(line, self.path)
        header = list(self.module.header)
        first = next((i for i, line in enumerate(header) if not _is_magic(line)), len(header))
        header.insert(first, cst.EmptyLine(indent=False, comment=cst.Comment(notice)))
        return self.module.with_changes(header=header, body=body).visit(_Applier(changes)).bytes

    def _import_index(self, changes: list[Change]) -> int:
        """Behind the last import above the first definition, yet above the first changed statement.

        Behind, so that ours sees upstream's imports done; above, so that a changed statement can use the name.
        """
        changed = {id(change.trail[1]) for change in changes if len(change.trail) > 1}
        at = 1 if self.module.get_docstring() is not None else 0
        for i, node in enumerate(self.module.body):
            if id(node) in changed or isinstance(node, (cst.ClassDef, cst.FunctionDef)):
                break
            if _is_import(node):
                at = i + 1
        return at


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in node.body
    )


def statement_of(trail: Trail, where: str) -> Trail:
    """The trail of the innermost statement that holds the last node of `trail` and stands on lines of its own."""
    for i in range(len(trail) - 1, 0, -1):
        if isinstance(trail[i - 1], cst.SimpleStatementSuite):
            break
        if isinstance(trail[i], cst.BaseStatement) and isinstance(trail[i - 1], (cst.IndentedBlock, cst.Module)):
            return trail[: i + 1]
    found = f"{code_of(trail[-1])!r} stands in a body on the line of its `:`"
    raise PatchError(where, found, "match the statement that holds it instead")


def _is_magic(line: cst.EmptyLine) -> bool:
    text = line.comment.value if line.comment else ""
    return text.startswith("#!") or "coding:" in text or "coding=" in text


class _Applier(cst.CSTTransformer):
    """Visits only the way to the changed nodes: the rest of the tree is reused as it is."""

    def __init__(self, changes: list[Change]):
        super().__init__()
        self.on_the_way = {_identity(node) for change in changes for node in change.trail}
        self.changes: dict[int | str, list[Change]] = {}
        for change in changes:
            self.changes.setdefault(_identity(change.node), []).append(change)

    def on_visit(self, node: cst.CSTNode) -> bool:
        return _identity(node) in self.on_the_way

    def on_leave(self, original: cst.CSTNode, updated: cst.CSTNode):
        before: list[cst.CSTNode] = []
        after: list[cst.CSTNode] = []
        for change in self.changes.get(_identity(original), ()):
            match change.kind:
                case "replace" | "inside":
                    updated = change.make(updated)
                case "before":
                    before += change.make(original)
                case "after":
                    after = [*change.make(original), *after]
        # a replaced statement may have become several
        now = list(updated) if isinstance(updated, cst.FlattenSentinel) else [updated]
        return cst.FlattenSentinel([*before, *now, *after]) if before or after else updated


def _identity(node: cst.CSTNode) -> int | str:
    """What a node is known by. The module is rebuilt with its imports before the changes, so its id will not do."""
    return "module" if isinstance(node, cst.Module) else id(node)
