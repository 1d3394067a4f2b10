"""Command line of the patch queue; see README.md."""

import argparse
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patches", description="The fork's patch queue.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("tree", help="write the patched and overlaid tree to a folder, for PYTHONPATH")
    command.add_argument("folder", type=Path)
    command.add_argument("--wheel", type=Path, help="the pinned upstream wheel; by default fetched through pip")
    command.add_argument("--device", default="cpu", help="requirements in its dist-info: cpu (default) or cuda")
    command.set_defaults(run=tree)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except PatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
