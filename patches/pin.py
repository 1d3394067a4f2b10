"""The pin: which upstream release the fork is made of, wheel by wheel, each with its hash."""

import dataclasses
import hashlib
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import Tag, sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from patches.errors import PatchError

PIN_FILE = Path(__file__).with_name("pin.toml")


@dataclasses.dataclass(frozen=True)
class Pin:
    version: Version
    wheels: dict[str, str]  # wheel file name: sha256 of the file, hexadecimal

    def wheel_for(self, tags: Iterable[Tag] | None = None) -> str:
        """The name of the wheel for an interpreter that supports `tags`, most wanted first; the running one by default.

        Raises PatchError when the pin has none.
        """
        wanted = list(sys_tags() if tags is None else tags)
        by_tag = {tag: name for name in self.wheels for tag in parse_wheel_filename(name)[3]}
        for tag in wanted:
            if tag in by_tag:
                return by_tag[tag]
        here = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sysconfig.get_platform()}"
        wanted_text = here if tags is None else f"an interpreter with the tag {wanted[0]}"
        remedy = "use one of " + ", ".join(sorted(map(str, by_tag)))
        raise PatchError("patches/pin.toml", f"has no wheel of sglang {self.version} for {wanted_text}", remedy)

    def check(self, wheel: Path) -> str:
        """The pinned name of the wheel file `wheel`; raises PatchError when its content is of none of the pinned."""
        if not wheel.is_file():
            raise PatchError(str(wheel), "is no file", "give the path of an upstream wheel")
        found = sha256(wheel)
        by_hash = {digest: name for name, digest in self.wheels.items()}
        if found not in by_hash:
            expected = self.wheels.get(wheel.name, f"one of the hashes of sglang {self.version} in patches/pin.toml")
            raise PatchError(str(wheel), f"sha256 is {found}, not {expected}", "remove the file and fetch it again")
        return by_hash[found]


def sha256(path: Path) -> str:
    """The hash of the file `path`, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_pin(path: Path = PIN_FILE) -> Pin:
    """The pin in `path`; raises PatchError when it does not have the form that `pin_text` writes."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        return Pin(Version(data["version"]), dict(data["wheels"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PatchError(str(path), f"is no pin: {error}", "restore it from version control") from None


def pin_text(pin: Pin) -> str:
    """`pin` as the text of a pin file."""
    lines = [
        "# The upstream release that the fork is made of. Written by `python -m patches rebase --onto VERSION`.",
        f'version = "{pin.version}"',
        "",
        "[wheels]  # file name = sha256",
        *(f'"{name}" = "{digest}"' for name, digest in sorted(pin.wheels.items())),
    ]
    return "\n".join(lines) + "\n"
