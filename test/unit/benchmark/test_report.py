"""The report: medians, who may be called best, pictures that are files, and a page that needs nothing else."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmark.command import BenchmarkError
from benchmark.report.points import best_at, points_of, speedup
from benchmark.report.published import published
from benchmark.report.style import styles_for
from benchmark.report.table import markdown
from benchmark.report.write import PAGE, TABLE, write
from benchmark.sweep.rounds import STAGES

from . import rows

TREES = [
    rows.row(f"tree {budget}", level, 90.0 * level + budget, tree_budget=budget, verify_width=budget + 1,
             accept_length=2 + budget / 100, stage_ms={stage: 1.0 + budget / 32 for stage in STAGES})
    for budget in (8, 16, 32)
    for level in (1, 4)
]  # fmt: skip
SWEEP = [
    *[rows.row("plain", level, speed) for level, speed in ((1, 100.0), (4, 320.0))],
    *[rows.row("chain", level, speed) for level, speed in ((1, 150.0), (4, 300.0))],
    *TREES,
]


def test_point_is_the_median_of_its_repeats() -> None:
    (point,) = points_of([rows.row(output_tok_s=speed, repeat=index) for index, speed in enumerate((90, 100, 500))])
    assert point.value("output_tok_s") == 100 and point.span("output_tok_s") == (90, 500)
    assert point.value("round_ms") is None


def test_stage_times_are_medians_like_the_others() -> None:
    times = ({"draft": 1.0}, {"draft": 3.0, "verify": 2.0}, None)
    (point,) = points_of([rows.row("tree", repeat=index, stage_ms=stages) for index, stages in enumerate(times)])
    assert point.value("stage_ms.draft") == 2.0 and point.value("stage_ms.verify") == 2.0
    assert point.value("stage_ms.commit") is None


def test_failed_rows_are_no_points() -> None:
    assert points_of([rows.failed("tree", "reason")]) == []


def test_speedup_is_over_the_baseline_at_the_same_level() -> None:
    points = points_of([*SWEEP, rows.row("other", 4, 600.0, baseline="chain")])
    found = {(point.configuration, point.concurrency): speedup(point, points) for point in points}
    assert found["chain", 1] == 1.5 and found["chain", 4] == 300 / 320
    assert found["other", 4] == 2.0
    assert speedup(points[2], points[2:]) is None  # the baseline was not measured


def test_text_that_differs_and_forced_lengths_cannot_win() -> None:
    garbage = rows.row("fast garbage", 1, 900.0, text="different", text_different=1, text_same=3)
    forced = rows.row("forced", 1, 800.0, forced_accept_length=3.0, text=None, text_reason="forced")
    points = points_of([*SWEEP, garbage, forced])
    assert best_at(points, 1).configuration == "chain"
    table = markdown(points, [])
    assert "| fast garbage | 8 | 2.00 | 900 (9.00x) |  | differs in 1 of 4 |" in table
    assert "| forced | 8 | 2.00 | 800 (8.00x) |  | noise (forced) |" in table
    assert "| chain | 8 | 2.00 | **150** (1.50x) | 300 (0.94x) | as plain |" in table


def test_loops_stand_in_the_table() -> None:
    loops = rows.row("loops", text="different", text_near_tie=4, text_same=0, text_loops=4, text_loops_plain=1)
    assert "| loops | 8 | 2.00 | 100 | loops in 4 of 4, plain in 1 |" in markdown(points_of([loops]), [])


def test_one_repeat_whose_text_differs_marks_the_point() -> None:
    repeats = [rows.row("chain"), rows.row("chain", repeat=1, text="different")]
    assert points_of(repeats)[0].text == "different"


def test_failures_stand_in_the_table_with_their_reason() -> None:
    table = markdown(points_of(SWEEP), [rows.failed("tree 64", "port 3 | taken")])
    assert "| tree 64 | all | port 3 \\| taken |" in table


class Links(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href") and value]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    failed = [rows.failed("tree <64>", "does not fit")]
    write(folder, "a sweep", points_of([*SWEEP, rows.row("odd", 1, 50.0, text="different")]), failed, published())
    return folder


def test_page_is_one_file(report: Path) -> None:
    page = (report / PAGE).read_text()
    links = Links()
    links.feed(page)
    assert len(links.sources) == len(list(report.glob("*.png"))) == 8
    assert all(source.startswith("data:image/png;base64,") for source in links.sources)
    assert "script" not in links.tags and "tree &lt;64&gt;" in page and "does not fit" in page
    assert "text differs" in page and "Reported elsewhere" in page


def test_every_picture_is_a_png_and_drawn_the_same_again(report: Path, tmp_path: Path) -> None:
    pictures = sorted(report.glob("*.png"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert (report / TABLE).read_text().count("\n|") > 6
    write(tmp_path, "a sweep", points_of([*SWEEP, rows.row("odd", 1, 50.0, text="different")]), [], published())
    assert [(tmp_path / path.name).read_bytes() for path in pictures] == [path.read_bytes() for path in pictures]


def test_plain_decoding_alone_has_a_report(tmp_path: Path) -> None:
    write(tmp_path, "plain", points_of([rows.row()]), [])
    assert {path.name for path in tmp_path.glob("*.png")} == {"chat-throughput.png", "chat-pareto.png"}


def test_looks_stay_apart_without_colour() -> None:
    styles = styles_for([f"c{index}" for index in range(8)])
    assert len({style.marker for style in styles.values()}) == 8
    assert len({style.hatch for style in styles.values()}) == 8
    greys = [0.3 * red + 0.59 * green + 0.11 * blue for red, green, blue, _ in (s.colour for s in styles.values())]
    assert greys == sorted(greys) and max(greys) < 0.75  # each lighter than the one before, none lost on white


def test_published_figures_have_a_source_and_a_number() -> None:
    for figure in published():
        assert figure.source and (figure.output_tok_s or figure.speedup)
    assert {figure.model for figure in published("Kimi-K2.6")} == {"Kimi-K2.6"}
    with pytest.raises(BenchmarkError, match="no figures for GPT"):
        published("GPT")
