"""The queue on disk: what the series, the queue files and their headers must agree on, one line for each error."""

import pytest

from harness.patching import FILE, queue_file, write_queue
from patches.errors import PatchError
from patches.series import load_series

EDIT = f'Decorate("{FILE}", "f", "g")'
GOOD = queue_file(EDIT, f"{FILE} :: f", landed=f'Present("{FILE}", "f", call("g"))')


def error_of(tmp_path, queue, series=None):
    with pytest.raises(PatchError) as error:
        load_series(write_queue(tmp_path, queue, series))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_patches_come_in_the_order_of_the_series(tmp_path):
    queue = write_queue(tmp_path, {"b": GOOD, "a": GOOD}, "# comment\nb  # why\n\na\n")
    assert [patch.name for patch in load_series(queue)] == ["b", "a"]
    assert len(load_series(queue)[0].landed) == 1


@pytest.mark.parametrize(
    ("series", "found"),
    [
        ("a\nb\n", "patches/series: names 'b', which has no queue file"),
        ("a\na\n", "patches/series: names 'a' 2 times"),
        ("", "patches/queue/a.py: is not in patches/series"),
    ],
)
def test_the_series_lists_exactly_the_queue_files(tmp_path, series, found):
    assert error_of(tmp_path, {"a": GOOD}, series).startswith(found)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("EDITS = (", "line 1 is not Python"),
        ("EDITS = ()", "no header"),
        (GOOD.replace("Remove-When: upstream does it\n", ""), "header field 'Remove-When' is missing"),
        (GOOD.replace("Decorate(", "Decorated("), "NameError: name 'Decorated' is not defined"),
        (GOOD.replace("EDITS", "EDIT"), "EDITS is missing, empty or holds something else"),
        (GOOD.replace('call("g")),', 'call("g")), 1'), "LANDED holds something else than Present"),
        (queue_file(EDIT, f"{FILE} :: h"), f"an edit of {FILE} :: f has no Touches line"),
        (queue_file(EDIT, f"{FILE} :: f\nTouches: {FILE} :: h"), f"Touches names {FILE} :: h, which no edit has"),
        (
            queue_file(f'AddImport("{FILE}", "import a")', "sglang/b.py"),
            f"an edit of {FILE} :: None has no Touches line",
        ),
    ],
)
def test_a_queue_file_that_is_not_as_described_is_named(tmp_path, content, found):
    message = error_of(tmp_path, {"a": content})
    assert message.startswith("patches/queue/a.py: ")
    assert found in message


def test_edits_of_the_modules_own_statements_may_be_described_in_words(tmp_path):
    content = queue_file(f'AddImport("{FILE}", "import a")', f"{FILE} :: its imports")
    assert len(load_series(write_queue(tmp_path, {"a": content}))) == 1
