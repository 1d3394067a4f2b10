"""Upstream wheels: fetched through pip with the user's own settings, checked, kept in the user's cache."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from patches.errors import PatchError
from patches.pin import Pin, sha256


def cache_folder() -> Path:
    """Where wheels are kept between builds: `sglang-fork` under XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-fork"


def pinned_wheel(pin: Pin, name: str) -> Path:
    """The wheel `name` of the pin, from the cache or the package index.

    Raises PatchError when it cannot be had, or when its hash is not the pinned one.
    """
    return fetched_wheel(pin.version, name, pin.wheels[name])


def fetched_wheel(version: Version, name: str, digest: str) -> Path:
    """The wheel file `name` of sglang `version`, whose sha256 must be `digest`; fetched unless the cache has it."""
    cached = cache_folder() / name
    if not cached.is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".fetch-") as temporary:
            fetched = _download(version, name, Path(temporary))
            _check(fetched, digest)
            os.replace(fetched, cached)
    _check(cached, digest)
    return cached


def _check(wheel: Path, digest: str) -> None:
    found = sha256(wheel)
    if found != digest:
        remedy = "remove the file and try again; if it comes back, the package index serves another file"
        raise PatchError(str(wheel), f"sha256 is {found}, expected {digest}", remedy)


def _download(version: Version, name: str, folder: Path) -> Path:
    command = ["download", "--no-deps", "--dest", str(folder), *pip_target(name), f"sglang=={version}"]
    print(f"fetching {name} from the package index", file=sys.stderr)
    run_pip(command, f"{name} cannot be fetched")
    if not (folder / name).is_file():
        found = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise PatchError(name, f"the package index gave {found}", "check the index settings of pip")
    return folder / name


def pip_target(name: str) -> list[str]:
    """pip's options that select the wheel file `name` whatever interpreter runs."""
    options = ["--only-binary", ":all:"]
    tags = parse_wheel_filename(name)[3]
    interpreter = next(iter(tags)).interpreter
    if interpreter.startswith("cp"):
        options += ["--implementation", "cp", "--python-version", f"{interpreter[2]}.{interpreter[3:]}"]
    for option, values in {"--abi": {tag.abi for tag in tags}, "--platform": {tag.platform for tag in tags}}.items():
        for value in sorted(values - {"none", "any"}):
            options += [option, value]
    return options


def run_pip(arguments: list[str], failure: str) -> None:
    """Runs the pip of this interpreter; raises PatchError with `failure` and pip's last error line when it fails."""
    if shutil.which(sys.executable) is None:
        raise PatchError("pip", f"cannot be run: {sys.executable!r} is no interpreter", "run this from a Python")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input", "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line or "No module named pip" in line]
        remedy = "check the network and pip's settings, or give a wheel file that you have"
        raise PatchError("pip", f"{failure}: {(errors or done.stdout.splitlines() or ['no output'])[-1]}", remedy)
