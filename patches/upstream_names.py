"""Which upstream names our files stand on, collected from their source.

A name is used in one or more ways: "import" (must exist), "call" (its signature matters), "override" (its signature
must stay the same), "edit" (the queue changes it), "member" (read through an imported name, `self` or `super()`).
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from patches.series import Patch

Uses = dict[str, set[str]]  # dotted upstream name -> ways of use
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def upstream_uses(ours: dict[str, Path], patches: Iterable[Patch]) -> Uses:
    """What our files (path in the wheel -> file) and the queue use of upstream. Names of our own are left out."""
    modules = {module_of(path): source for path, source in ours.items() if path.endswith(".py")}
    found: list[tuple[str, str]] = []
    for module, source in modules.items():
        package = module if source.name == "__init__.py" else module.rpartition(".")[0]
        found += _uses_in(ast.parse(source.read_bytes()), package)
    for patch in patches:
        for edit in patch.edits:
            found.append((f"{module_of(edit.file)}.{edit.scope}" if edit.scope else module_of(edit.file), "edit"))
            found += _uses_in(ast.parse(edit.import_line() or ""), "")
            for text in (getattr(edit, "code", ""), getattr(edit, "new", "")):
                found += _uses_in(ast.parse(text.replace("{match}", "match")), "")
    uses: Uses = {}
    for name, use in found:
        if not any(f"{name}.".startswith(f"{module}.") for module in modules):
            uses.setdefault(name, set()).add(use)
    return uses


def module_of(path: str) -> str:
    """The dotted name of the module in the file `path`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _uses_in(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    bound = {local: name for local, name in _imports(tree, package) if name.startswith("sglang.")}
    yield from ((name, "import") for name in bound.values())

    def upstream(node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return bound.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = upstream(node.value)
            return owner and f"{owner}.{node.attr}"
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := upstream(node)):
            yield name, "member"
        elif isinstance(node, ast.Call) and (name := upstream(node.func)):
            yield name, "call"
        elif isinstance(node, ast.ClassDef):
            for base in filter(None, map(upstream, node.bases)):
                yield from ((f"{base}.{member}", use) for member, use in _members_used(node))


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """Local name and dotted name of everything that a file imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            folders = package.split(".")
            above = folders[: len(folders) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((item.asname or item.name, f"{module}.{item.name}") for item in node.names)
        elif isinstance(node, ast.Import):
            yield from ((item.asname or item.name, item.name) for item in node.names)


def _members_used(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Members that a class of ours overrides, or reaches through `self`, `cls` and `super()`."""
    yield from ((item.name, "override") for item in node.body if isinstance(item, FUNCTIONS))
    for item in ast.walk(node):
        owner = item.value if isinstance(item, ast.Attribute) else None
        through_super = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
        if through_super or getattr(owner, "id", "") in ("self", "cls"):
            yield item.attr, "member"
