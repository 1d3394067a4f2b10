"""Command line of the round cost table; see ``--help``."""

import argparse
import sys
import time
from pathlib import Path

import yaml

from benchmark.command import BenchmarkError, run_resumable
from benchmark.sweep.gpu import gpus

from .bandwidth import copy_bandwidth_gb_s
from .measure import measure
from .plan import Plan
from .shapes import BLOCK_SIZE, LEAST_LAYERS, SHAPES
from .table import FILE, Table

WIDTHS = (1, 16, 64, 4, 256, 2, 8, 32, 128)  # the most telling ones first, for runs that are cut short
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def rounds(options: argparse.Namespace) -> int:
    """Returns 0, or 1 where rows failed or are missing."""
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    shape = SHAPES[options.shape].cut(options.layers) if options.layers else SHAPES[options.shape]
    if shape.layers < LEAST_LAYERS:
        raise BenchmarkError(
            f"--layers {shape.layers}: the draft reads two layers before the last, give {LEAST_LAYERS}"
        )
    flags = _flags(options.flag)
    with gpus() as boards:
        memory = boards.least_memory_mib()
    measured = options.bandwidth is None
    bandwidth = copy_bandwidth_gb_s() if measured else options.bandwidth
    ranks = int(flags.get("tp-size", 1))
    plan = Plan(
        shape,
        options.widths,
        sorted(options.batches),
        options.context,
        bandwidth_gb_s=bandwidth * ranks,
        bandwidth_source="copy" if measured else "given",
        repeats=options.repeats,
        cell_seconds=options.cell_seconds,
        seed=options.seed,
        flags=flags,
        gpu_memory_mib=memory,
        most_tokens=options.most_tokens,
        plain_server=options.plain_server,
        accept_lengths=options.accept_lengths,
    )
    if plan.accept_lengths and (max(plan.widths) == 1 or 1 not in plan.widths):
        raise BenchmarkError("--accept-lengths: give --widths 1 and a greater one, to compare with plain decoding")
    if not plan.cells():
        raise BenchmarkError(f"--most-tokens {plan.most_tokens}: no width with any batch is as small, give more")
    table = Table(options.out or Path("results") / f"round-{shape.name}")
    if options.retry_failed:
        table.drop_failed()
    done, asked = measure(plan, table, deadline)
    failed = sum(row["status"] != "ok" for row in table.rows)
    print(f"{done} of {asked} cells, {failed} failed rows: {table.folder / FILE}")
    if done < asked:
        print("time is over; the same command goes on from here")
    print(f"python -m benchmark.report {table.folder} draws them")
    return int(failed > 0 or done < asked)


def _flags(words: list[str]) -> dict:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or name.startswith("-"):
            raise BenchmarkError(f"--flag {word}: write it as NAME=VALUE, such as tp-size=2, or NAME for a bare flag")
        found[name] = yaml.safe_load(value) if equals else True
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.round",
        description="Measure what a verify round costs by width and batch, for a model shape with random weights, "
        "beside the least time that memory bandwidth allows. One server measures all widths. Goes on where an earlier "
        "run stopped.",
    )
    parser.add_argument("shape", choices=SHAPES, help="model shape; the tiny ones run anywhere")
    parser.add_argument("--widths", type=_positive(256), nargs="+", default=WIDTHS, metavar="W",
                        help=f"nodes per request, 1 is plain decoding (default: {_text(WIDTHS)})")  # fmt: skip
    parser.add_argument("--batches", type=_positive(4096), nargs="+", default=BATCHES, metavar="B",
                        help=f"requests at once (default: {_text(BATCHES)})")  # fmt: skip
    parser.add_argument("--context", type=_positive(1 << 20), default=1024, metavar="TOKENS",
                        help="tokens of each request before the tree (default: 1024)")  # fmt: skip
    parser.add_argument("--most-tokens", type=_positive(1 << 20), default=16384, metavar="N",
                        help="leave out cells of more tokens, width times batch (default: 16384)")  # fmt: skip
    parser.add_argument("--accept-lengths", type=_length, nargs="+", default=(), metavar="A",
                        help="measure tokens per second as well, of every width and of the server's own choice, with "
                        "acceptance forced to A tokens a round")  # fmt: skip
    parser.add_argument("--layers", type=_positive(1000), metavar="N", help="cut the model to its first N layers")
    parser.add_argument("--minutes", type=float, metavar="M", help="start no cell after M minutes")
    parser.add_argument("--bandwidth", type=float, metavar="GB_PER_S",
                        help="memory bandwidth of one device, 10^9 bytes/s (default: measured by a copy)")  # fmt: skip
    parser.add_argument("--flag", action="append", default=[], metavar="NAME=VALUE", help="a flag of the server")
    parser.add_argument("--plain-server", action="store_true",
                        help="measure width 1 with a server of its own, without speculation")  # fmt: skip
    parser.add_argument("--repeats", type=_positive(100), default=3)
    parser.add_argument("--cell-seconds", type=float, default=2.0, metavar="S", help="time of one repeat, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="results folder (default: results/round-SHAPE)")
    parser.add_argument("--retry-failed", action="store_true", help="measure failed rows again")
    return run_resumable(parser, rounds)


def _positive(most: int):
    def number(word: str) -> int:
        value = int(word) if word.isdigit() else 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{word!r} is no number from 1 to {most}")
        return value

    return number


def _length(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 1 < value <= BLOCK_SIZE:
        raise argparse.ArgumentTypeError(f"{word!r} is no number above 1, up to {BLOCK_SIZE}, what a block can emit")
    return value


def _text(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


if __name__ == "__main__":
    sys.exit(main())
