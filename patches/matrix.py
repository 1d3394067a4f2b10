"""The outcome of every patch on a range of real releases, as a table."""

from collections.abc import Iterable

from patches.release import open_release
from patches.report import Report, report_on

RELEASES = ("0.5.11", "0.5.14", "0.5.17", "0.5.18", "0.5.20", "0.5.22", "0.5.23")


def matrix_text(releases: Iterable[str] = RELEASES) -> str:
    """The table in Markdown, with the reasons below it; wheels that the cache lacks are fetched."""
    reports = [report_on(open_release(version)) for version in releases]
    versions = [str(report.release.version) for report in reports]
    lines = [
        "# The queue on upstream's releases",
        "",
        "Made by `python -m patches matrix`; make it anew when the queue changes. In parentheses: the release is",
        "outside the Applies-To of the patch, so a build on it leaves the patch out.",
        "",
        _row(["patch", *versions]),
        _row(["---"] * (len(versions) + 1)),
    ]
    for index, verdict in enumerate(reports[0].verdicts):
        lines.append(_row([verdict.patch.name, *(_cell(report, index) for report in reports)]))
    lines.append(_row(["overlay paths that upstream has", *(str(len(report.clashes)) for report in reports)]))
    lines.append(_row(["upstream names gone or changed", *(str(len(report.api)) for report in reports)]))
    lines += ["", "## Reasons", ""]
    for index, verdict in enumerate(reports[0].verdicts):
        reasons: dict[str, list[str]] = {}
        for version, report in zip(versions, reports, strict=True):
            found = report.verdicts[index]
            if found.detail and "outside Applies-To" not in found.detail:
                reasons.setdefault(f"{found.outcome}: {found.detail}", []).append(version)
        lines += [f"- {verdict.patch.name}, {', '.join(where)}: {reason}" for reason, where in reasons.items()]
    return "\n".join([*lines, ""])


def _cell(report: Report, index: int) -> str:
    verdict = report.verdicts[index]
    return verdict.outcome if verdict.in_range else f"({verdict.outcome})"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
