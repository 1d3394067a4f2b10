"""The upstream names that the fork stands on, with their signatures: recorded for the pin, compared with a release.

Read statically with griffe: nothing of upstream is imported. `upstream_api.json`, made by `python -m patches record`,
holds names, kinds and parameter lists, no other text of upstream.
"""

import difflib
import json
from collections.abc import Iterable
from pathlib import Path

import griffe

from patches.errors import PatchError
from patches.release import Release
from patches.upstream_names import Uses

RECORD_FILE = Path(__file__).with_name("upstream_api.json")
MUST_EXIST = {"import", "edit"}
KEYWORD_ONLY = " keyword-only"
Record = dict[str, dict]  # dotted name -> {"kind", "parameters" where it can be called, "used"}


def make_record(uses: Uses, release: Release) -> Record:
    """The entry of every used name that `release` has; raises PatchError where one that must exist is missing."""
    api = ReleaseApi(release)
    record = {}
    for name, ways in sorted(uses.items()):
        entry = api.describe(name, ways)
        if entry is not None:
            record[name] = {**entry, "used": sorted(ways)}
        elif ways & MUST_EXIST:
            remedy = "correct the import or the edit"
            raise PatchError(
                f"sglang {release.version}", f"has no {name}, which our files {sorted(ways & MUST_EXIST)[-1]}", remedy
            )
    return record


def record_text(record: Record) -> str:
    """The record as JSON, one name a line."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in record.items()) + "\n}\n"


def read_record(path: Path = RECORD_FILE) -> Record:
    """The committed record of the pin; raises PatchError when it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PatchError(str(path), f"is no record: {error}", "run `python -m patches record`") from None


def differences(record: Record, release: Release) -> list[str]:
    """One line for each recorded name that `release` no longer has, or has with a signature that breaks its use."""
    api = ReleaseApi(release)
    lines = []
    for name, entry in record.items():
        found = api.describe(name, entry["used"])
        if found is None and entry["used"] == ["edit"]:
            continue  # the verdict of the patch says so already
        if found is None:
            owner, _, leaf = name.rpartition(".")
            near = difflib.get_close_matches(leaf, api.names_in(owner), n=1)
            lines.append(f"{name} is gone; nearest in {owner}: {near[0] if near else 'nothing alike'}")
        elif found["kind"] != entry["kind"]:
            lines.append(f"{name} was a {entry['kind']} and is a {found['kind']}")
        elif not _fits(entry, found):
            old, new = (", ".join(item.get("parameters", ["unknown"])) for item in (entry, found))
            lines.append(f"{name} took ({old}) and takes ({new})")
    return lines


def _fits(entry: dict, found: dict) -> bool:
    """Whether what was used as `entry` can be used as `found`: an override wants the same parameters; a call bears
    further optional ones behind the old ones."""
    old, new = entry.get("parameters"), found.get("parameters")
    if old == new or old is None:
        return True
    if new is None or "override" in entry["used"]:
        return False
    positional = [text for text in old if not text.startswith("*") and KEYWORD_ONLY not in text]
    added = set(new) - set(old)
    optional = all("=" in text or text.startswith("*") for text in added)
    return optional and set(old) <= set(new) and new[: len(positional)] == positional


class ReleaseApi:
    """Looks up dotted names in a release, each module read once. Names outside `sglang` are not followed."""

    def __init__(self, release: Release):
        self._release = release
        self._modules: dict[str, griffe.Module | None] = {}

    def describe(self, name: str, ways: Iterable[str] = ()) -> dict | None:
        """Kind and parameters of the object `name`, used in these `ways`; None when the release has no such name."""
        found = self._find(name)
        if found is None:
            folder = f"{name.replace('.', '/')}/"  # a package may lack an __init__.py
            return {"kind": "module"} if any(path.startswith(folder) for path in self._release.files) else None
        if found.is_alias:
            return {"kind": "import"}
        entry = {"kind": found.kind.value}
        maker = self._member(found, "__init__") if found.is_class else found
        if isinstance(maker, griffe.Function):
            entry["parameters"] = [_spelling(parameter) for parameter in maker.parameters]
        elif found.is_class and "call" in ways and "dataclass" in found.labels:
            fields = (member for member in found.members.values() if member.is_attribute and member.annotation)
            entry["parameters"] = [f"{field.name}{'=' if field.value else ''}" for field in fields]
        return entry

    def names_in(self, owner: str) -> list[str]:
        """The names defined directly in the module or class `owner`, none when there is no such owner."""
        found = self._find(owner)
        return [] if found is None or found.is_alias else sorted(found.members)

    def _module(self, name: str) -> griffe.Module | None:
        if name not in self._modules:
            stem = name.replace(".", "/")
            path = next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self._release.files), None)
            self._modules[name] = path and griffe.visit(
                name, filepath=Path(path), code=self._release.read(path).decode("utf-8")
            )
        return self._modules[name]

    def _find(self, name: str, steps: int = 20):
        """The object behind a dotted name, through re-exports; `steps` ends circles of imports."""
        parts = name.split(".")
        for size in range(len(parts), 0, -1):
            found = self._module(".".join(parts[:size]))
            if found is not None:
                for part in parts[size:]:
                    found = found and self._member(found, part, steps)
                return found
        return None

    def _member(self, owner, name: str, steps: int = 20):
        """The member of a module or class, from wildcard imports and base classes too."""
        if owner.is_alias or steps == 0:
            return None
        member = owner.members.get(name)
        if member is not None:
            ours = member.is_alias and member.target_path.startswith("sglang.")
            return self._find(member.target_path, steps - 1) if ours else member
        if owner.is_module:
            places = [item.target_path for key, item in owner.members.items() if key.endswith("/*")]
        else:
            places = [path for base in getattr(owner, "bases", ()) if (path := _path_of(owner, base))]
        found = (self._find(f"{place}.{name}", steps - 1) for place in places if place.startswith("sglang."))
        return next((item for item in found if item is not None), None)


def _spelling(parameter: griffe.Parameter) -> str:
    """`name`, `name=` with a default, `*name`, `**name`; keyword-only and positional-only ones say so."""
    match parameter.kind:
        case griffe.ParameterKind.var_positional:
            return f"*{parameter.name}"
        case griffe.ParameterKind.var_keyword:
            return f"**{parameter.name}"
        case griffe.ParameterKind.keyword_only:
            mark = KEYWORD_ONLY
        case griffe.ParameterKind.positional_only:
            mark = " positional-only"
        case _:
            mark = ""
    return f"{parameter.name}{'=' if parameter.default is not None else ''}{mark}"


def _path_of(owner: griffe.Class, base: griffe.Expr | str) -> str | None:
    try:
        return owner.module.resolve(str(base))
    except griffe.NameResolutionError:
        return None  # built in, or made by an expression
