"""What an edit looks for. A pattern names one construct and no neighbouring lines.

`call`, `expression` match expressions; `assign`, `imports`, `raises` match statements.
"""

import ast
import dataclasses
import functools
from typing import ClassVar

import libcst as cst


class Pattern:
    """A construct to look for inside one scope; reads in errors as it is written in a patch."""

    spelling: ClassVar[str]

    def matches(self, node: cst.CSTNode) -> bool:
        raise NotImplementedError

    def __str__(self) -> str:
        first, *others = (
            (field.name, value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        )
        arguments = [repr(first[1]), *(f"{name}={value!r}" for name, value in others)]
        return f"{self.spelling}({', '.join(arguments)})"


def dotted_name(node: cst.CSTNode | None) -> str | None:
    """`a.b.c` for a chain of plain names; a chain that starts otherwise (`f().b`) keeps its plain tail, `.b`."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return f"{dotted_name(node.value) or ''}.{node.attr.value}"
    return None


def has_suffix(name: str | None, suffix: str) -> bool:
    """Whether `name` is `suffix` or ends with it after a dot."""
    return name is not None and f".{name}".endswith(f".{suffix}")


@functools.lru_cache(maxsize=4096)
def normalized(source: str) -> str:
    """`source`, one expression, in one spelling: white space, quotes and needless parentheses do not count."""
    return ast.dump(ast.parse(f"({source}\n)", mode="eval"))


def code_of(node: cst.CSTNode) -> str:
    """The source text of `node`."""
    return cst.Module([]).code_for_node(node)


@dataclasses.dataclass(frozen=True)
class CallPattern(Pattern):
    spelling = "call"
    callee: str
    arg: str | None

    def matches(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call) or not has_suffix(dotted_name(node.func), self.callee):
            return False
        if self.arg is None:
            return True
        return bool(node.args) and normalized(code_of(node.args[0].value)) == normalized(self.arg)


@dataclasses.dataclass(frozen=True)
class AssignPattern(Pattern):
    spelling = "assign"
    target: str

    def matches(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Assign):
            targets = [item.target for item in node.targets]
        elif isinstance(node, (cst.AnnAssign, cst.AugAssign)):
            targets = [node.target]
        else:
            return False
        return any(normalized(code_of(target)) == normalized(self.target) for target in targets)


@dataclasses.dataclass(frozen=True)
class ExpressionPattern(Pattern):
    spelling = "expression"
    source: str

    @functools.cached_property
    def node(self) -> cst.BaseExpression:
        return cst.parse_expression(self.source)

    def matches(self, node: cst.CSTNode) -> bool:
        # the first two conditions are implied by the third and spare writing out most candidates
        return (
            type(node) is type(self.node)
            and dotted_name(getattr(node, "func", node)) == dotted_name(getattr(self.node, "func", self.node))
            and normalized(code_of(node)) == normalized(self.source)
        )


@dataclasses.dataclass(frozen=True)
class ImportPattern(Pattern):
    spelling = "imports"
    module: str
    binds: str | None

    def matches(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.ImportFrom):
            names = ["." * len(node.relative) + (dotted_name(node.module) or "")]
        elif isinstance(node, cst.Import):
            names = [dotted_name(item.name) for item in node.names]
        else:
            return False
        if not any(f"{name}.".startswith(f"{self.module}.") for name in names):
            return False
        if self.binds is None:
            return True
        items = [] if isinstance(node.names, cst.ImportStar) else node.names
        return self.binds in (item.evaluated_alias or item.evaluated_name for item in items)


@dataclasses.dataclass(frozen=True)
class RaisePattern(Pattern):
    spelling = "raises"
    exception: str

    def matches(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Raise):
            return False
        raised = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
        return has_suffix(dotted_name(raised), self.exception)


def call(callee: str, arg: str | None = None) -> Pattern:
    """A call whose callee's dotted name is `callee` or ends with it; `arg` is the source of its first argument."""
    return CallPattern(callee, arg)


def assign(target: str) -> Pattern:
    """An assignment (plain, annotated or augmented) with `target` among its targets."""
    return AssignPattern(target)


def expression(source: str) -> Pattern:
    """An expression with the same structure as `source`."""
    return ExpressionPattern(source)


def imports(module: str, binds: str | None = None) -> Pattern:
    """An import statement of `module` or of one of its submodules; `binds` is a name that it makes known."""
    return ImportPattern(module, binds)


def raises(exception: str) -> Pattern:
    """A raise statement of an exception class whose dotted name is `exception` or ends with it."""
    return RaisePattern(exception)
