"""The dist-info of the fork, made from upstream's: name, version, requirements, entry points, licences."""

import configparser
import io
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build_backend.settings import Target
from patches.errors import PatchError


def requirements_for(target: Target, upstream: list[str]) -> list[str]:
    """Upstream's requirements as `target` wants them; a target that changes nothing gives them unchanged.

    Raises PatchError when the target leaves out a package that upstream no longer asks for.
    """
    names = {line: canonicalize_name(Requirement(line).name) for line in upstream}
    for name in target.without:
        if name not in names.values():
            raise PatchError("pyproject.toml", f"leaves out {name}, which upstream does not require", "remove the line")
    replaced = {canonicalize_name(Requirement(text).name) for text in target.added}

    def kept(line: str) -> bool:
        marker = str(Requirement(line).marker or "")
        return names[line] not in target.without and (names[line] not in replaced or "extra ==" in marker)

    return [*target.added, *filter(kept, upstream)]


def metadata_for(upstream: bytes, name: str, version: str, target: Target, licences: list[str]) -> bytes:
    """METADATA of the fork: upstream's with another name, version, requirements and list of licence files."""
    headers, _, description = upstream.decode("utf-8").partition("\n\n")
    fields = re.split(r"\n(?!\s)", headers)  # a line that begins with white space goes on with its field
    upstream_requirements = [field.partition(": ")[2] for field in fields if field.startswith("Requires-Dist:")]
    ours = {
        "Name": [name],
        "Version": [version],
        "License-File": licences,
        "Requires-Dist": requirements_for(target, upstream_requirements),
    }
    replaced, lines = set(ours), []
    for field in fields:
        key = field.split(":", 1)[0]
        # all values of a field where upstream has its first one
        lines += [f"{key}: {value}" for value in ours.pop(key)] if key in ours else []
        lines += [field] if key not in replaced else []
    lines += [f"{key}: {value}" for key, values in ours.items() for value in values]
    return "\n".join([*lines, "", description]).encode("utf-8")


def entry_points_for(upstream: str, ours: dict[str, dict[str, str]]) -> str:
    """entry_points.txt with upstream's groups and ours; raises PatchError when both define one name."""
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str
    parser.read_string(upstream)
    for group, points in ours.items():
        if not parser.has_section(group):
            parser.add_section(group)
        for name, value in points.items():
            if parser.has_option(group, name):
                found = f"entry point {group}:{name} is also upstream's, {parser.get(group, name)}"
                raise PatchError("pyproject.toml", found, "choose another name")
            parser.set(group, name, value)
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def dist_info_of(tree: Path) -> Path:
    """The one dist-info folder at the top of an unpacked wheel."""
    found = sorted(tree.glob("*.dist-info"))
    if len(found) != 1:
        raise PatchError(str(tree), f"has {len(found)} dist-info folders", "use a wheel of sglang")
    return found[0]
