"""The HTML page: one file, pictures inside, no script and nothing fetched."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from benchmark.round import plots as rounds
from benchmark.round.speeds import markdown as speed_table
from benchmark.round.speeds import speeds
from benchmark.round.table import at
from benchmark.sweep.rounds import STAGES

from .points import Point, Row, speedup
from .published import Figure

MEASURES = {
    "output tok/s": "output_tok_s",
    "tok/s per request": "user_tok_s",
    "TTFT p50 ms": "ttft_ms_p50",
    "TTFT p95 ms": "ttft_ms_p95",
    "TTFT p99 ms": "ttft_ms_p99",
    "token gap p50 ms": "itl_ms_p50",
    "token gap p95 ms": "itl_ms_p95",
    "token gap p99 ms": "itl_ms_p99",
    "accept length": "accept_length",
    "round ms": "round_ms",
    **{f"{stage} ms": f"stage_ms.{stage}" for stage in STAGES},
    "GPU memory MiB": "gpu_memory_mib",
    "energy J": "energy_j",
}
_SETUP_OF_MACHINE = (
    "sglang",
    "commit",
    "python_version",
    "torch",
    "gpus",
    "driver",
    "cpu",
    "cores",
    "system",
    "model",
    "seed",
)


def page(
    name: str,
    points: Sequence[Point],
    failed: Sequence[Row],
    pictures: Mapping[str, Sequence[Path]],
    published: Sequence[Figure],
) -> str:
    """Returns the page of a sweep; ``pictures`` are PNG files by workload."""
    return _render(
        "page.html.j2",
        name=name,
        workloads=[_workload(workload, points, pictures[workload]) for workload in pictures],
        failed=failed,
        machines=_machines(row for point in points for row in point.rows),
        configurations={point.configuration: _how(point) for point in points},
        published=published,
    )


def rounds_page(name: str, rows: Sequence[Row], pictures: Mapping[str, Sequence[Path]]) -> str:
    """Returns the page of a round cost table; ``pictures`` are PNG files by the title of their group."""
    groups = []
    for title, group in rounds.groups(rows):
        header, lines = rounds.markdown(group)
        measured = {f"{row['bandwidth_gb_s']:g} GB/s ({row['bandwidth_source']})" for row in group}
        flags = {_flag_text(row["setup"]["flags"]) for row in group if row["width"] == group[-1]["width"]}
        groups.append(
            {
                "title": title,
                "pictures": [_embedded(path) for path in pictures[title]],
                "header": header,
                "rows": lines,
                "speeds": [
                    {"accept_length": f"{found.accept_length:g}", "table": speed_table(found)}
                    for found in speeds(at(rows, **{name: group[0][name] for name in ("shape", "layers", "context")}))
                ],
                "bandwidth": ", ".join(sorted(measured)),
                "flags": "; ".join(sorted(flags)),
            }
        )
    return _render(
        "rounds.html.j2",
        name=name,
        groups=groups,
        failed=[row for row in rows if row["status"] != "ok"],
        machines=_machines(row for row in rows if row["status"] == "ok"),
    )


def _render(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def _embedded(path: Path) -> tuple[str, str]:
    return path.stem, base64.b64encode(path.read_bytes()).decode()


def _workload(name: str, points: Sequence[Point], pictures: Sequence[Path]) -> dict[str, Any]:
    group = [point for point in points if point.workload == name]
    measures = {title: key for title, key in MEASURES.items() if any(point.value(key) for point in group)}
    notes = []
    distinct, sent = (
        max(row[key] for point in group for row in point.rows) for key in ("distinct_prompts", "requests")
    )
    if distinct < sent:
        notes.append(f"Up to {sent} requests of {distinct} prompts: later ones find their prompt in the prefix cache.")
    repeating = max(row["repeating_prompts"] for point in group for row in point.rows)
    if repeating:
        notes.append(f"{repeating} prompts are a text repeated: drafts guess such prompts more easily than real ones.")
    if group[0].rows[0]["setup"]["workload"]["ignore_eos"]:
        notes.append("Answers go on behind their end, where they tend to loop: accept lengths flatter the draft.")
    return {
        "name": name,
        "notes": notes,
        "sampling": group[0].rows[0]["setup"]["workload"],
        "pictures": [_embedded(path) for path in pictures],
        "header": [*measures, "speedup"],
        "rows": [
            {
                "configuration": point.configuration,
                "concurrency": point.concurrency,
                "repeats": len(point.rows),
                "mark": _mark(point),
                "values": [*(_number(point.value(key)) for key in measures.values()), _number(speedup(point, group))],
            }
            for point in group
        ],
    }


def _mark(point: Point) -> str:
    if point.forced:
        return "forced accept length"
    return {"different": "text differs", "same": "text as plain", None: "text not compared"}[point.text]


def _how(point: Point) -> str:
    setup = point.rows[0]["setup"]
    if setup["url"]:
        return f"attached to {setup['url']}"
    flags = _flag_text(setup["flags"])
    variables = " ".join(f"{name}={value}" for name, value in setup["env"].items())
    version = f"(sglang {setup['sglang']})"
    return " ".join(part for part in (variables, flags, version) if part)


def _flag_text(flags: Mapping[str, Any]) -> str:
    return " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items())


def _machines(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Every distinct machine and checkout that ``rows`` were measured with."""
    found: list[dict[str, Any]] = []
    for row in rows:
        entry = {key: row["setup"][key] for key in _SETUP_OF_MACHINE if key in row["setup"]}
        if entry not in found:
            found.append(entry)
    return found


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
