"""An upstream release opened for reading, and what the package index knows of it."""

import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from patches.errors import PatchError
from patches.fetch import cache_folder, fetched_wheel, pinned_wheel, run_pip
from patches.pin import Pin, read_pin, sha256

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
NEWEST_GLIBC = 50  # of the manylinux tags asked for; far above any that exists


class Release:
    """The files of one upstream release, read from its wheel. Raises PatchError when the wheel is damaged."""

    def __init__(self, wheel: Path):
        try:
            name, self.version, _, _ = parse_wheel_filename(wheel.name)
            self._archive = zipfile.ZipFile(wheel)
            damaged = self._archive.testzip()
        except (InvalidWheelFilename, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise PatchError(str(wheel), f"is no readable wheel: {error}", "remove it and fetch it again") from None
        if damaged is not None:
            raise PatchError(str(wheel), f"is damaged at {damaged}", "remove it and fetch it again")
        if name != "sglang":
            raise PatchError(str(wheel), f"is a wheel of {name}", "give one of sglang")
        self.wheel = wheel
        self.files = {name for name in self._archive.namelist() if not name.endswith("/")}

    def digest(self) -> str:
        """The sha256 of the wheel file, hexadecimal."""
        return sha256(self.wheel)

    def read(self, file: str) -> bytes | None:
        """The content of a file, None where the release has none at this path."""
        return self._archive.read(file) if file in self.files else None


def parse_version(text: str) -> Version:
    """`text` as a version; raises PatchError when it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        raise PatchError("--onto", f"{text!r} is neither a version nor a wheel file", "give one of them") from None


def open_release(onto: str | None, pin: Pin | None = None) -> Release:
    """The release `onto`, a version or a wheel file; the pinned one for None. Fetched unless the cache has it."""
    pin = pin or read_pin()
    if onto is not None and onto.endswith(".whl"):
        return Release(Path(onto))
    version = pin.version if onto is None else parse_version(onto)
    if version == pin.version:
        return Release(pinned_wheel(pin, pin.wheel_for()))
    here = set(sys_tags())
    for cached in sorted(cache_folder().glob(f"sglang-{version}-*.whl")):
        if here & parse_wheel_filename(cached.name)[3]:
            return Release(cached)
    wheels = index_wheels(version)
    name = Pin(version, wheels).wheel_for()
    return Release(fetched_wheel(version, name, wheels[name]))


def index_wheels(
    version: Version, pythons: Iterable[str] = PYTHONS, machines: Iterable[str] = MACHINES
) -> dict[str, str]:
    """The wheels of `version` on the package index for these Pythons and machines: file name -> sha256.

    A Python or machine that the release does not serve is left out; raises PatchError when there is none at all.
    """
    found: dict[str, str] = {}
    failures = []
    for python in pythons:
        for machine in machines:
            try:
                found |= _index_wheel(version, python, machine)
            except PatchError as error:
                if not re.search("No matching distribution|from versions", error.found):
                    raise
                failures.append(error)
    if not found:
        raise PatchError(f"sglang {version}", failures[0].found, "give a version that the package index has")
    return found


def _index_wheel(version: Version, python: str, machine: str) -> dict[str, str]:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, 4, -1)]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    options = [word for platform in platforms for word in ("--platform", platform)]
    options += ["--only-binary", ":all:", "--python-version", python]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        # asks the index for name and hash; where it serves metadata by itself, nothing else is fetched
        dry_run = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--target", folder]
        run_pip([*dry_run, *options, "--report", str(report), f"sglang=={version}"], f"no sglang {version}")
        (item,) = json.loads(report.read_bytes())["install"]
    download = item["download_info"]
    return {download["url"].rsplit("/", 1)[1]: download["archive_info"]["hashes"]["sha256"]}
