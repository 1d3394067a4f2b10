"""The dist-info of the fork, made from upstream's: name, version, requirements, entry points, licences."""

import configparser
import io
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build_backend.settings import Target
from patches.errors import PatchError


def requirements_for(target: Target, upstream: list[str]) -> list[str]:
    """Upstream's Requires-Dist lines as `target` wants them; a target that changes nothing gives them unchanged.

    Raises PatchError when the target leaves out a package that upstream no longer asks for.
    """
    named = {canonicalize_name(Requirement(line).name) for line in upstream}
    for name in target.without:
        if name not in named:
            raise PatchError("pyproject.toml", f"leaves out {name}, which upstream does not require", "remove the line")
    replaced = {canonicalize_name(Requirement(text).name) for text in target.added}
    kept = [
        line
        for line in upstream
        if (name := canonicalize_name(Requirement(line).name)) not in target.without
        and (name not in replaced or "extra" in str(Requirement(line).marker))
    ]
    return [*target.added, *kept]


def metadata_for(upstream: bytes, name: str, version: str, target: Target, licences: list[str]) -> bytes:
    """METADATA of the fork: upstream's with another name, version, requirements and list of licence files."""
    message = message_from_bytes(upstream)
    wanted = requirements_for(target, message.get_all("Requires-Dist", []))
    result = Message()
    for field, value in message.items():
        if field == "Name":
            value = name
        elif field == "Version":
            value = version
        elif field in ("Requires-Dist", "License-File"):
            continue
        result[field] = value
    for licence in licences:
        result["License-File"] = licence
    for requirement in wanted:
        result["Requires-Dist"] = requirement
    headers = "".join(f"{field}: {value}\n" for field, value in result.items())
    return f"{headers}\n{message.get_payload()}".encode()


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
