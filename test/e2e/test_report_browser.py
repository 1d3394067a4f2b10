"""The report's page in a headless browser: nothing fetched, every picture shown, nothing wider than the window."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from unit.benchmark import rows

from benchmark.report.points import points_of
from benchmark.report.published import published
from benchmark.report.write import write
from benchmark.sweep.rounds import STAGES

BROWSER = Path(__file__).parents[1] / "browser"
SECONDS = 300


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """Chromium and its driver, from the package registry once, kept in the user's cache."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}, which the headless browser comes with")
    wanted = (BROWSER / "package.json").read_text()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-fork" / "browser"
    stamp = cache / ".installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return cache
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "package.json").write_text(wanted)
    command = ["npm", "install", "--no-audit", "--no-fund", "--omit=dev", "--prefix", str(cache)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"the headless browser cannot be installed: {last}")
    stamp.write_text(wanted)
    return cache


def opened(page: Path, widths: list[int], node_folder: Path) -> list[dict]:
    """What the browser finds in ``page`` at each width of its window, in pixels."""
    environment = {**os.environ, "NODE_FOLDER": str(node_folder), "TMPDIR": str(node_folder)}
    command = ["node", str(BROWSER / "open_page.mjs"), str(page), *map(str, widths)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout)


def test_page_shows_itself_in_a_wide_and_in_a_narrow_window(node_folder: Path, tmp_path: Path) -> None:
    measured = [
        rows.row("plain", 1, 100.0),
        rows.row("chain", 1, 150.0),
        rows.row("tree 16", 1, 190.0, tree_budget=16, verify_width=17, stage_ms=dict.fromkeys(STAGES, 2.0)),
    ]
    page = write(tmp_path, "a <sweep>", points_of(measured), [rows.failed("tree <64>", "does not fit")], published())
    pictures = len(list(tmp_path.glob("*.png")))
    for seen, width in zip(opened(page, [1280, 480], node_folder), (1280, 480), strict=True):
        assert seen["problems"] == []
        assert {url.partition(":")[0] for url in seen["requests"]} <= {"file", "data"}
        assert seen["title"] == "a <sweep>" and "Reported elsewhere" in seen["headings"]
        assert len(seen["images"]) == pictures
        assert all(natural > 0 and 0 < shown <= width for natural, shown in seen["images"])
        assert seen["overflow"] <= 0 and seen["mode"] == "CSS1Compat"
