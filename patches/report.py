"""The state of the whole fork on one release: a verdict for each patch, and the guards in the other direction."""

import dataclasses
from collections import Counter
from pathlib import Path

from build_backend.assemble import overlay_clashes, overlay_files
from build_backend.settings import REPOSITORY, read_settings
from patches.apply import applicable, write_atomic
from patches.errors import PatchError
from patches.release import Release
from patches.series import load_patch, load_series, series_names
from patches.upstream_api import RECORD_FILE, differences, make_record, read_record, record_text
from patches.upstream_names import upstream_uses
from patches.verdict import Verdict, judge


@dataclasses.dataclass(frozen=True)
class Report:
    release: Release
    verdicts: list[Verdict]
    unreadable: dict[str, str]  # name of a patch that cannot be read -> why
    clashes: list[str]  # overlay files at paths that upstream has
    api: list[str]  # upstream names that are gone or changed

    @property
    def needs_hand(self) -> bool:
        """Whether the fork cannot stand on the release without somebody's work."""
        return bool(self.unreadable or self.clashes or self.api or any(v.needs_hand for v in self.verdicts))

    def lines(self) -> list[str]:
        """The report as text: a row for each patch, then the guards, then a summary."""
        rows = [(v.patch.name, v.outcome, v.detail) for v in self.verdicts]
        rows += [(name, "broken", why) for name, why in self.unreadable.items()]
        width = max((len(name) for name, _, _ in rows), default=0)
        lines = [f"{name:{width}}  {outcome:17}  {detail}".rstrip() for name, outcome, detail in rows]
        lines += [f"overlay: {text}" for text in self.clashes]
        lines += [f"upstream name: {text}" for text in self.api]
        counts = Counter(outcome for _, outcome, _ in rows)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "an empty queue"
        guards = f"{len(self.clashes)} overlay clashes, {len(self.api)} changed upstream names"
        verdict = "needs a hand" if self.needs_hand else "nothing needs a hand"
        return [*lines, f"sglang {self.release.version}: {summary}; {guards}: {verdict}"]


def report_on(release: Release, repository: Path = REPOSITORY) -> Report:
    """Tries the queue and the guards of the fork in `repository` on `release`; writes nothing.

    A patch that cannot be read gets its own row. Raises PatchError only where the series itself is wrong.
    """
    patches, unreadable = [], {}
    for name in series_names(repository / "patches"):
        try:
            patches.append(load_patch(name, repository / "patches"))
        except PatchError as error:
            unreadable[name] = f"{error.found}; {error.remedy}"
    overlay = overlay_files(repository, read_settings(repository))
    return Report(
        release,
        judge(patches, release),
        unreadable,
        [f"{error.where}: {error.found}" for error in overlay_clashes(overlay, release.files)],
        differences(read_record(repository / "patches" / RECORD_FILE.name), release),
    )


def write_record(release: Release, repository: Path = REPOSITORY) -> int:
    """Records the upstream names that the fork in `repository` uses as `release`, its pin, has them; returns how many.

    Raises PatchError, with nothing written, when the release lacks a name that our files import or edit.
    """
    patches = load_series(repository / "patches")
    uses = upstream_uses(overlay_files(repository, read_settings(repository)), applicable(patches, release.version))
    record = make_record(uses, release)
    write_atomic(repository / "patches" / RECORD_FILE.name, record_text(record).encode())
    return len(record)
