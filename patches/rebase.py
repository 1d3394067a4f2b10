"""Moves the fork onto another upstream release: new pin, absorbed patches dropped, a work list for the rest."""

import dataclasses
import os
from pathlib import Path

from build_backend.settings import REPOSITORY
from patches.apply import write_atomic
from patches.fetch import fetched_wheel
from patches.pin import Pin, pin_text, read_pin
from patches.release import Release, index_wheels, parse_version
from patches.report import Report, report_on
from patches.series import load_series
from patches.verdict import LANDED

WORK_LIST = "worklist.md"


@dataclasses.dataclass(frozen=True)
class Rebased:
    pin: Pin
    report: Report
    dropped: list[str]  # names of the patches that the release has absorbed


def rebase(onto: str, repository: Path = REPOSITORY) -> Rebased:
    """Pins `onto`, a version on the package index or a wheel file, and writes what it leaves to do.

    The index is asked for the hash of every wheel; a wheel file becomes the only one of the pin. Everything is judged
    before anything is written. Raises PatchError, with nothing written, when the release cannot be had.
    """
    patches = repository / "patches"
    old = read_pin(patches / "pin.toml")
    load_series(patches)  # a queue that cannot be read is put right first
    if onto.endswith(".whl"):
        release = Release(Path(onto))
        pin = Pin(release.version, {Path(onto).name: release.digest()})
    else:
        version = parse_version(onto)
        pin = Pin(version, index_wheels(version))
        name = pin.wheel_for()
        release = Release(fetched_wheel(version, name, pin.wheels[name]))
    report = report_on(release, repository)
    # a patch that the old pin did without is kept for the older releases that it is for
    dropped = [
        verdict.patch.name
        for verdict in report.verdicts
        if verdict.outcome == LANDED and verdict.patch.header.applies_to.contains(old.version, prereleases=True)
    ]
    _write(patches, pin, dropped, work_list(old, report, dropped) if report.needs_hand else None)
    return Rebased(pin, report, dropped)


def _write(patches: Path, pin: Pin, dropped: list[str], work: str | None) -> None:
    if work is None:
        (patches / WORK_LIST).unlink(missing_ok=True)
    else:
        write_atomic(patches / WORK_LIST, work.encode())
    if dropped:
        # the file first: a series line without its file is an error that says so, and the run can be repeated
        kept = [
            line for line in (patches / "series").read_text().splitlines() if line.split("#")[0].strip() not in dropped
        ]
        for name in dropped:
            os.unlink(patches / "queue" / f"{name}.py")
        write_atomic(patches / "series", "\n".join([*kept, ""]).encode())
    write_atomic(patches / "pin.toml", pin_text(pin).encode())


def work_list(old: Pin, report: Report, dropped: list[str]) -> str:
    """What a person has to do after the rebase, one item a line."""
    lines = [f"# From sglang {old.version} to {report.release.version}: what is left to do", ""]
    lines += [f"Dropped, since upstream has it: {name}" for name in dropped] + [""] * bool(dropped)
    for verdict in report.verdicts:
        if verdict.needs_hand:
            lines.append(f"- [ ] patches/queue/{verdict.patch.name}.py: {verdict.outcome}: {verdict.detail}")
    lines += [f"- [ ] patches/queue/{name}.py: broken: {why}" for name, why in report.unreadable.items()]
    lines += [f"- [ ] overlay: {text}" for text in report.clashes]
    lines += [f"- [ ] upstream name: {text}" for text in report.api]
    lines += ["", "Then: `python -m patches status`, `python -m patches record`, the tests, and remove this file.", ""]
    return "\n".join(lines)
