"""The table [tool.sglang-fork] of pyproject.toml as one checked value."""

import dataclasses
import tomllib
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patches.errors import PatchError

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Target:
    """What one value of SGLANG_TARGET_DEVICE does to upstream's requirements."""

    without: dict[str, str]  # canonical package name: reason
    added: dict[str, str]  # requirement, in place of upstream's for the same package: reason


@dataclasses.dataclass(frozen=True)
class Settings:
    name: str
    local_version: str
    overlay: dict[str, str]  # folder in the repository: folder in the wheel
    entry_points: dict[str, dict[str, str]]
    targets: dict[str, Target]

    def target(self, device: str) -> Target:
        """The target for a value of SGLANG_TARGET_DEVICE; raises PatchError for an unknown one."""
        if device not in self.targets:
            remedy = "set it to one of " + ", ".join(sorted(self.targets))
            raise PatchError("SGLANG_TARGET_DEVICE", f"is {device!r}", remedy)
        return self.targets[device]


def read_settings(repository: Path = REPOSITORY) -> Settings:
    """The settings of this repository; raises PatchError when a requirement cannot be read."""
    table = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["tool"]["sglang-fork"]
    targets = {}
    for device, rows in table["targets"].items():
        without = {canonicalize_name(name): reason for name, reason in rows.get("without", {}).items()}
        added = rows.get("with", {})
        for text in added:
            try:
                Requirement(text)
            except InvalidRequirement as error:
                raise PatchError("pyproject.toml", f"requirement {text!r}: {error}", "correct it") from None
        targets[device] = Target(without, added)
    return Settings(table["name"], table["local-version"], table["overlay"], table["entry-points"], targets)
