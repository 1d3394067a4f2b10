"""What patches are written in: the edits, and the patterns re-exported for them.

An edit names a file inside the upstream wheel, a scope (the qualified name of a function or class, None for the
module's own statements) and one construct in it. Any other number of matches than the patch says is an error.
Each edit turns into Changes on the pristine tree and import lines; apply.py makes them all at once.
"""

import dataclasses

import libcst as cst

from patches.errors import MatchCountWrong, PatchError, TargetMoved
from patches.patterns import Pattern, assign, call, code_of, expression, imports, raises
from patches.syntax import Change, Scope, SourceFile, Trail, statement_of

__all__ = ["AddField", "AddImport", "AppendItem", "Decorate", "Insert", "Present", "Replace"]
__all__ += ["after", "assign", "before", "call", "expression", "imports", "raises"]

# expressions that keep their meaning wherever they are put; others get parentheses
_CLOSED = (cst.Call, cst.Name, cst.Attribute, cst.Subscript, cst.BaseString, cst.List, cst.Dict, cst.Set)


@dataclasses.dataclass(frozen=True)
class Beside:
    """The place before or after the statement that holds a match."""

    side: str  # "before" or "after"
    pattern: Pattern


def before(pattern: Pattern) -> Beside:
    """In front of the innermost statement that holds the match."""
    return Beside("before", pattern)


def after(pattern: Pattern) -> Beside:
    """Behind the innermost statement that holds the match."""
    return Beside("after", pattern)


@dataclasses.dataclass(frozen=True)
class Edit:
    """Base of the edits. `plan` raises PatchError and names `patch` when the target is not as described."""

    file: str
    scope: str | None

    def import_line(self) -> str | None:
        """The import that the edit needs at the top of the file."""
        module, name = getattr(self, "module", None), getattr(self, "name", None)
        return f"from {module} import {name}" if module else None

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Decorate(Edit):
    """Puts `decorator` outermost on the function or class `scope`; `module` is where its leading name comes from."""

    decorator: str
    module: str | None = None

    @property
    def name(self) -> str:
        return self.decorator.split("(", 1)[0].split(".", 1)[0]

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        new = cst.Decorator(_parse_expression(self.decorator, patch))

        def decorate(node: Scope) -> Scope:
            return node.with_changes(decorators=[new, *node.decorators])

        return [Change(source.find(self.scope, patch), "inside", decorate, "decorators")]


@dataclasses.dataclass(frozen=True)
class Insert(Edit):
    """Adds the statements `code` to `scope`: at its "start" (behind a docstring), its "end", or beside a match."""

    code: str
    module: str | None = None
    name: str | None = None
    where: str | Beside = "start"

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        scope = source.find(self.scope, patch)
        new = source.parse_statements(self.code, patch)
        if isinstance(self.where, Beside):
            (hit,) = _matches(source, scope, self, self.where.pattern, 1, patch)
            return [Change(statement_of(hit, patch), self.where.side, lambda node: new)]
        if self.where not in ("end",) + ("start",) * (self.scope is not None):
            remedy = 'write "end", before(pattern), after(pattern) or, in a function or class, "start"'
            raise PatchError(patch, f"Insert has where={self.where!r} in {self.scope or 'the module level'}", remedy)
        body = _body_of(scope[-1], patch)
        if self.where == "end" and body and _leaves(body[-1]):
            raise PatchError(patch, f"{self.scope} ends with {code_of(body[-1]).strip()!r}", "use before(pattern)")

        def insert(node: Scope) -> Scope:
            lines = list(_body_of(node, patch))
            at = len(lines) if self.where == "end" else int(node.get_docstring() is not None)
            return _with_body(node, [*lines[:at], *new, *lines[at:]])

        return [Change(scope, "inside", insert, self.where)]


@dataclasses.dataclass(frozen=True)
class Replace(Edit):
    """Puts `new` in place of each match in `scope`; `{match}` in it stands for the matched source."""

    pattern: Pattern
    new: str
    module: str | None = None
    name: str | None = None
    count: int = 1

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        hits = _matches(source, source.find(self.scope, patch), self, self.pattern, self.count, patch)
        return [self._replacement(source, hit, patch) for hit in hits]

    def _replacement(self, source: SourceFile, hit: Trail, patch: str) -> Change:
        code = self.new.replace("{match}", code_of(hit[-1]))
        if isinstance(hit[-1], cst.BaseExpression):
            new = _parse_expression(code, patch)
            if not new.lpar and (hit[-1].lpar or not isinstance(new, _CLOSED)):
                new = new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            return Change(hit, "replace", lambda node: new)
        lines = source.parse_statements(code, patch)
        if len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine) and len(lines[0].body) == 1:
            small = lines[0].body[0]
            return Change(hit, "replace", lambda node: small.with_changes(semicolon=node.semicolon))
        line = statement_of(hit, patch)
        if not lines or len(line[-1].body) > 1:
            raise PatchError(patch, f"{code!r} cannot take the place of {code_of(hit[-1])!r}", "give one statement")
        first = lines[0].with_changes(leading_lines=line[-1].leading_lines)
        return Change(line, "replace", lambda node: cst.FlattenSentinel([first, *lines[1:]]))


@dataclasses.dataclass(frozen=True)
class AddImport(Edit):
    """Adds one import statement at the top of the file, unless it is there."""

    scope: str | None = dataclasses.field(default=None, init=False)
    line: str = ""

    def import_line(self) -> str:
        return self.line

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        return []


@dataclasses.dataclass(frozen=True)
class AddField(Edit):
    """Appends the annotated assignment `field` to the body of the class `scope`."""

    field: str

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        scope = source.find(self.scope, patch)
        new = source.parse_statements(self.field, patch)
        name = _declared(new[0])
        if len(new) != 1 or name is None or not isinstance(scope[-1], cst.ClassDef):
            raise PatchError(patch, f"{self.field!r} is no field of a class", "write 'name: annotation = default'")
        if name in map(_declared, _body_of(scope[-1], patch)):
            raise MatchCountWrong(patch, f"{self.scope} already has the field {name!r}", "see whether upstream took it")

        def append(node: cst.ClassDef) -> cst.ClassDef:
            lines = list(_body_of(node, patch))
            at = 1 + max((i for i, line in enumerate(lines) if _declared(line)), default=len(lines) - 1)
            return _with_body(node, [*lines[:at], *new, *lines[at:]])

        return [Change(scope, "inside", append, f"field {name}")]


@dataclasses.dataclass(frozen=True)
class AppendItem(Edit):
    """Appends `item` to the list, tuple or set literal that the module assigns to the name `scope`."""

    item: str

    def plan(self, source: SourceFile, patch: str) -> list[Change]:
        hits = source.search((source.module,), assign(self.scope))
        if not hits:
            raise TargetMoved(patch, f"{self.file} assigns no {self.scope}", "change the patch", self.scope)
        values = [(*hit, hit[-1].value) for hit in hits]
        literals = [trail for trail in values if isinstance(trail[-1], (cst.List, cst.Tuple, cst.Set))]
        if len(literals) != 1:
            found = f"{self.file} assigns {len(literals)} list, tuple or set literals to {self.scope}, not 1"
            raise MatchCountWrong(patch, found, "read the target and change the patch")
        new = _parse_expression(self.item, patch)
        if any(new.deep_equals(element.value) for element in literals[0][-1].elements):
            raise MatchCountWrong(patch, f"{self.scope} already holds {self.item}", "see whether upstream took it")
        return [Change(literals[0], "inside", lambda node: _with_item(node, new), f"item {self.item}")]


@dataclasses.dataclass(frozen=True)
class Present:
    """True of a release in which `pattern` matches inside `scope`: the sign that upstream has what a patch brings."""

    file: str
    scope: str | None
    pattern: Pattern

    def holds(self, source: SourceFile) -> bool:
        trails = [(source.module,)] if self.scope is None else source.definitions.get(self.scope, [])
        return any(source.search(trail, self.pattern) for trail in trails)


def _matches(source: SourceFile, scope: Trail, edit: Edit, pattern: Pattern, count: int, patch: str) -> list[Trail]:
    hits = source.search(scope, pattern)
    if len(hits) != count:
        found = f"{pattern} matches {len(hits)} times in {edit.scope or 'the module level'} of {edit.file}, not {count}"
        raise MatchCountWrong(patch, found, "read the target and change the pattern")
    return hits


def _parse_expression(code: str, patch: str) -> cst.BaseExpression:
    try:
        return cst.parse_expression(code)
    except cst.ParserSyntaxError as error:
        raise PatchError(patch, f"{code!r} is no expression: {error.message}", "correct the edit") from None


def _body_of(node: Scope, patch: str) -> list[cst.BaseStatement]:
    body = node.body if isinstance(node, cst.Module) else node.body.body
    if not isinstance(node, cst.Module) and not isinstance(node.body, cst.IndentedBlock):
        raise PatchError(patch, f"the body of {node.name.value} stands on the line of its `:`", "choose another target")
    return list(body)


def _with_body(node: Scope, lines: list[cst.BaseStatement]) -> Scope:
    return node.with_changes(body=lines if isinstance(node, cst.Module) else node.body.with_changes(body=lines))


def _leaves(node: cst.BaseStatement) -> bool:
    leaving = (cst.Return, cst.Raise, cst.Continue, cst.Break)
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[-1], leaving)


def _declared(node: cst.BaseStatement) -> str | None:
    """The name that a line of a class body annotates."""
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return code_of(small.target) if isinstance(small, cst.AnnAssign) else None


def _with_item(node: cst.List | cst.Tuple | cst.Set, item: cst.BaseExpression):
    """The literal with one element more, in the spacing and trailing comma of those that it has."""
    if not node.elements:
        return node.with_changes(elements=[cst.Element(item, comma=cst.Comma())])
    *others, last = node.elements
    opening, closing = _brackets(node)
    gap = others[-1].comma.whitespace_after if others else cst.SimpleWhitespace(" ")
    end = closing.whitespace_before
    lines = isinstance(end, cst.ParenthesizedWhitespace)  # the closing bracket stands on a line of its own
    if lines and not isinstance(gap, cst.ParenthesizedWhitespace):
        gap = opening.whitespace_after
    if isinstance(gap, cst.ParenthesizedWhitespace):
        # a comment behind the last element stays with it
        gap = gap.with_changes(first_line=end.first_line if lines else cst.TrailingWhitespace(), empty_lines=[])
        node = node.with_deep_changes(end, first_line=cst.TrailingWhitespace()) if lines else node
    elements = [*others, last.with_changes(comma=cst.Comma(whitespace_after=gap)), cst.Element(item, comma=last.comma)]
    return node.with_changes(elements=elements)


def _brackets(node: cst.List | cst.Tuple | cst.Set) -> tuple[cst.CSTNode, cst.CSTNode]:
    match node:
        case cst.List():
            return node.lbracket, node.rbracket
        case cst.Set():
            return node.lbrace, node.rbrace
        case _:
            return (node.lpar[-1], node.rpar[0]) if node.lpar else (cst.LeftParen(), cst.RightParen())
