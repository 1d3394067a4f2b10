"""The queue: which patches there are, in which order, and what each one says of itself."""

import ast
import dataclasses
import importlib.util
from pathlib import Path

from patches.errors import PatchError
from patches.header import Header, parse_header
from patches.transforms import Edit, Present

PATCHES = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Patch:
    name: str
    header: Header
    edits: tuple[Edit, ...]
    landed: tuple[Present, ...]  # all true of a release that needs the patch no more

    @property
    def label(self) -> str:
        """How errors name the patch."""
        return label_of(self.name)

    @property
    def files(self) -> list[str]:
        """The upstream files that it edits, each once."""
        return list(dict.fromkeys(edit.file for edit in self.edits))


def label_of(name: str) -> str:
    """How errors name the patch `name`."""
    return f"patches/queue/{name}.py"


def series_names(patches: Path = PATCHES) -> list[str]:
    """The names in `series`, in apply order; raises PatchError unless they are exactly the files of the queue."""
    lines = (line.split("#", 1)[0].strip() for line in (patches / "series").read_text("utf-8").splitlines())
    names = [line for line in lines if line]
    files = {path.stem for path in (patches / "queue").glob("*.py")}
    for name in names:
        if name not in files:
            raise PatchError("patches/series", f"names {name!r}, which has no queue file", f"add {label_of(name)}")
        if names.count(name) > 1:
            raise PatchError("patches/series", f"names {name!r} {names.count(name)} times", "keep one line")
    for name in sorted(files - set(names)):
        raise PatchError(label_of(name), "is not in patches/series", "add its name there or remove the file")
    return names


def load_series(patches: Path = PATCHES) -> list[Patch]:
    """All patches in apply order; raises PatchError at the first that cannot be read."""
    return [load_patch(name, patches) for name in series_names(patches)]


def load_patch(name: str, patches: Path = PATCHES) -> Patch:
    """The patch `name`; raises PatchError when its header or its edits are not as README.md describes."""
    label, path = label_of(name), patches / "queue" / f"{name}.py"
    try:
        docstring = ast.get_docstring(ast.parse(path.read_bytes()), clean=False)
    except SyntaxError as error:
        raise PatchError(label, f"line {error.lineno} is not Python: {error.msg}", "correct it") from None
    header = parse_header(docstring, label)
    spec = importlib.util.spec_from_file_location(f"patches.queue.{name}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PatchError(label, f"{type(error).__name__}: {error}", "correct it") from error
    edits, landed = getattr(module, "EDITS", ()), getattr(module, "LANDED", ())
    if not edits or not all(isinstance(edit, Edit) for edit in edits):
        raise PatchError(label, "EDITS is missing, empty or holds something else", "make it a tuple of edits")
    if not all(isinstance(sign, Present) for sign in landed):
        raise PatchError(label, "LANDED holds something else than Present", "make it a tuple of Present(...)")
    patch = Patch(name, header, tuple(edits), tuple(landed))
    _check_touches(patch)
    return patch


def _check_touches(patch: Patch) -> None:
    """The header names every target of the edits and nothing else, so that it can be read in place of them.

    For edits of a module's own statements the header may put any words behind `::`, or leave them out.
    """
    edited = {(edit.file, edit.scope) for edit in patch.edits}
    listed = set(patch.header.touches)
    for file, scope in sorted(edited - listed, key=str):
        if scope is not None or file not in {listed_file for listed_file, _ in listed}:
            raise PatchError(patch.label, f"an edit of {file} :: {scope} has no Touches line", "add one to the header")
    for file, scope in sorted(listed - edited, key=str):
        if (file, None) not in edited:
            raise PatchError(patch.label, f"Touches names {file} :: {scope}, which no edit has", "remove the line")
