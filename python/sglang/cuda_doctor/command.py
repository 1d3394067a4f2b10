"""What the doctor's command line does."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from .facts import Facts, Gpu, from_json
from .findings import diagnose
from .probes import read_machine
from .report import as_json, as_text
from .toolkits import Version


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report; returns 1 where something needs a hand, else 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        facts = _recorded(options.facts) if options.facts else read_machine()
    except (OSError, ValueError) as error:
        parser.error(f"--facts {options.facts}: {error}")
    if options.gpus:
        facts = dataclasses.replace(facts, gpus=tuple(_imagined(*at) for at in enumerate(options.gpus)))
    findings = diagnose(facts)
    if options.json:
        print(json.dumps(as_json(facts, findings), indent=2))
    else:
        print(as_text(facts, findings))
    return int(any(finding.severity == "error" for finding in findings))


def _recorded(file: Path) -> Facts:
    value = json.loads(file.read_text())
    if not isinstance(value, dict):
        raise ValueError("expected the output of --json")
    return from_json(value.get("facts", value))


def _imagined(index: int, capability: Version) -> Gpu:
    return Gpu(index, "not present, judged as if it were", capability, 0)


def _capability(word: str) -> Version:
    major, dot, minor = word.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise argparse.ArgumentTypeError(f"{word!r} is no compute capability; write it as 12.0")
    return int(major), int(minor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sglang.cuda_doctor",
        description="Says what stands between this machine and serving on NVIDIA GPUs, with the command that mends it.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="judge the machine of an earlier --json output")
    parser.add_argument(
        "--gpus", type=_capability, nargs="+", metavar="X.Y",
        help="judge as if GPUs of these compute capabilities were here, as an image's build does",
    )  # fmt: skip
    return parser
