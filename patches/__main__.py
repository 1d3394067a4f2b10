"""Command line of the patch queue; README.md has a walk-through. Exit status 0 only where nothing needs a hand."""

import argparse
import difflib
import sys
from pathlib import Path

from patches.errors import PatchError
from patches.fetch import pinned_wheel
from patches.pin import read_pin


def tree(arguments: argparse.Namespace) -> int:
    """Writes the patched and overlaid tree."""
    from build_backend.assemble import write_tree

    pin = read_pin()
    wheel = arguments.wheel or pinned_wheel(pin, pin.wheel_for())
    write_tree(wheel, arguments.folder, arguments.device)
    print(f"wrote {arguments.folder}")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """One row for each patch, then the guards."""
    from patches.release import open_release
    from patches.report import report_on

    report = report_on(open_release(arguments.onto))
    print("\n".join(report.lines()))
    return int(report.needs_hand)


def rebase(arguments: argparse.Namespace) -> int:
    """Moves the pin and leaves a work list."""
    from patches.rebase import WORK_LIST
    from patches.rebase import rebase as move

    rebased = move(arguments.onto)
    print("\n".join(rebased.report.lines()))
    print(f"pinned sglang {rebased.pin.version}: {len(rebased.pin.wheels)} wheels")
    for name in rebased.dropped:
        print(f"dropped {name}: upstream has it")
    if rebased.report.needs_hand:
        print(f"what is left to do: patches/{WORK_LIST}")
    return int(rebased.report.needs_hand)


def diff(arguments: argparse.Namespace) -> int:
    """Prints the diff that one patch makes on the pin. It quotes upstream: do not commit it."""
    from patches.apply import patch_sources
    from patches.release import open_release
    from patches.series import load_patch, series_names

    if arguments.name not in series_names():
        near = difflib.get_close_matches(arguments.name, series_names(), n=1)
        raise PatchError(
            "patches/series", f"has no {arguments.name!r}", f"name a patch of it{', ' * bool(near)}{''.join(near)}"
        )
    release = open_release(arguments.onto)
    for file, content in patch_sources([load_patch(arguments.name)], release.version, release.read).items():
        old, new = (data.decode("utf-8").splitlines(keepends=True) for data in (release.read(file), content))
        sys.stdout.writelines(difflib.unified_diff(old, new, f"a/{file}", f"b/{file}"))
    return 0


def matrix(arguments: argparse.Namespace) -> int:
    """Writes matrix.md."""
    from patches.apply import write_atomic
    from patches.matrix import matrix_text

    path = Path(__file__).with_name("matrix.md")
    write_atomic(path, matrix_text().encode())
    print(f"wrote {path}")
    return 0


def record(arguments: argparse.Namespace) -> int:
    """Writes upstream_api.json for the pin."""
    from patches.release import open_release
    from patches.report import write_record

    names = write_record(open_release(None))
    print(f"wrote patches/upstream_api.json: {names} names")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patches", description="The fork's patch queue.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(run.__name__, help=text, description=text)
        added.set_defaults(run=run)
        return added

    added = command(tree, "write the patched and overlaid tree to a folder, for PYTHONPATH")
    added.add_argument("folder", type=Path)
    added.add_argument("--wheel", type=Path, help="the pinned upstream wheel; by default fetched through pip")
    added.add_argument("--device", default="cpu", help="requirements in its dist-info: cpu (default) or cuda")
    added = command(status, "try the queue and the guards on a release; exit 0 if nothing needs a hand")
    added.add_argument("--onto", metavar="VERSION|WHEEL", help="the release; by default the pinned one")
    added = command(rebase, "pin another release, drop what it has absorbed, leave a work list")
    added.add_argument("--onto", metavar="VERSION|WHEEL", required=True)
    added = command(diff, "print the diff that a patch makes; it quotes upstream, so do not commit it")
    added.add_argument("name")
    added.add_argument("--onto", metavar="VERSION|WHEEL", help="the release; by default the pinned one")
    command(matrix, "try the queue on a range of releases and write patches/matrix.md")
    command(record, "write patches/upstream_api.json: the upstream names that the fork stands on")
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except PatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
