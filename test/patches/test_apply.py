"""Applying a queue: all or nothing, the same every time, and never two patches on one construct."""

import json
import random
import re

import pytest

from harness.patching import FILE, VERSION, apply_to, make_patch, queue_file, text, write_queue
from patches.apply import RECORD, patch_sources, patch_tree
from patches.errors import PatchError
from patches.series import load_series
from patches.transforms import AddField, AddImport, AppendItem, Decorate, Insert, Replace, after, assign, before, call

SOURCE = text("""
    import os

    ITEMS = ["a"]


    class Pool:
        size: int = 1

        def grow(self):
            self.size = f(g(1))
            return self.size
""")
GROW = "Pool.grow"


def clash(first, second):
    with pytest.raises(PatchError) as error:
        apply_to(SOURCE, make_patch(first, name="one"), make_patch(second, name="two"))
    return str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Replace(FILE, GROW, call("f"), "x"), Replace(FILE, GROW, call("f"), "y")),
        (Replace(FILE, GROW, call("f"), "x"), Replace(FILE, GROW, call("g"), "y")),
        (Replace(FILE, GROW, call("g"), "y"), Replace(FILE, GROW, assign("self.size"), "x()")),
        (Replace(FILE, GROW, assign("self.size"), "if a:\n    x()"), Replace(FILE, GROW, call("g"), "y")),
        (Decorate(FILE, GROW, "a"), Decorate(FILE, GROW, "b")),
        (Insert(FILE, GROW, "a()"), Insert(FILE, GROW, "b()")),
        (Insert(FILE, GROW, "a()", where=before(call("f"))), Insert(FILE, GROW, "b()", where=before(call("g")))),
        (AddField(FILE, "Pool", "a: int = 1"), AddField(FILE, "Pool", "a: int = 2")),
        (AppendItem(FILE, "ITEMS", "'b'"), AppendItem(FILE, "ITEMS", "'b'")),
    ],
)
def test_two_patches_on_one_construct_stop_with_both_names(first, second):
    expected = f"{FILE}: one and two touch the same construct; make one edit of them, in one patch"
    assert clash(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Replace(FILE, GROW, call("g"), "y"), Insert(FILE, GROW, "a()", where=after(call("f")))),
        (Replace(FILE, GROW, assign("self.size"), "y()"), Insert(FILE, GROW, "a()", where=before(call("f")))),
        (Insert(FILE, GROW, "a()", where=before(call("f"))), Insert(FILE, GROW, "b()", where=after(call("f")))),
        (Insert(FILE, GROW, "a()"), Decorate(FILE, GROW, "b")),
        (AddField(FILE, "Pool", "a: int = 1"), AddField(FILE, "Pool", "b: int = 2")),
        (AppendItem(FILE, "ITEMS", "'b'"), AppendItem(FILE, "ITEMS", "'c'")),
        (AddImport(FILE, "import sys"), AddImport(FILE, "import sys")),
    ],
)
def test_two_patches_beside_each_other_both_apply(first, second):
    def words(*edits):
        return set(re.findall(r"\w+", apply_to(SOURCE, *map(make_patch, edits))))

    upstream = set(re.findall(r"\w+", SOURCE))
    assert words(first, second) - upstream == (words(first) | words(second)) - upstream != set()


def test_no_patch_sees_the_work_of_another():
    adding = make_patch(Insert(FILE, GROW, "f(2)"), name="adds a call")
    wrapping = make_patch(Replace(FILE, GROW, call("f"), "h({match})"), name="wraps the call")
    lines = apply_to(SOURCE, adding, wrapping).splitlines()
    assert lines[-3:] == ["        f(2)", "        self.size = h(f(g(1)))", "        return self.size"]
    assert apply_to(SOURCE, wrapping, adding) == "\n".join([*lines, ""])


def test_a_patch_for_other_releases_is_left_out():
    other = make_patch(Decorate("sglang/gone.py", "f", "a"), applies_to="<1.0")
    assert patch_sources([other], VERSION, lambda file: None) == {}


QUEUE = {
    "adds-check": queue_file(
        f'Insert("{FILE}", "{GROW}", "check()", module="sglang.ours", name="check")', f"{FILE} :: {GROW}"
    ),
    "adds-field": queue_file(f'AddField("{FILE}", "Pool", "spare: int = 0")', f"{FILE} :: Pool"),
    "adds-item": queue_file('AppendItem("sglang/other.py", "ITEMS", "2")', "sglang/other.py :: ITEMS"),
}


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tree/sglang").mkdir(parents=True)
    (tmp_path / "tree" / FILE).write_text(SOURCE)
    (tmp_path / "tree/sglang/other.py").write_text("ITEMS = [1]\n")
    return tmp_path / "tree"


def contents(tree):
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_a_second_time_changes_nothing(tree, tmp_path):
    queue = load_series(write_queue(tmp_path, QUEUE))
    assert patch_tree(tree, queue, VERSION) == [FILE, "sglang/other.py"]
    once = contents(tree)
    assert patch_tree(tree, queue, VERSION) == []
    assert contents(tree) == once


def test_each_run_and_each_order_of_loading_gives_the_same_bytes(tree, tmp_path):
    read = {file: data for file, data in contents(tree).items()}.get
    results = []
    for run in range(3):
        queue = load_series(write_queue(tmp_path / str(run), QUEUE))
        results.append(patch_sources(queue, VERSION, read))
    assert results[0] == results[1] == results[2]
    random.Random(1).shuffle(queue)
    assert {k: v.split(b"\n", 1)[1] for k, v in patch_sources(queue, VERSION, read).items()} == {
        k: v.split(b"\n", 1)[1] for k, v in results[0].items()
    }


def test_a_failing_patch_leaves_the_tree_untouched(tree, tmp_path):
    queue = load_series(write_queue(tmp_path, QUEUE))
    failing = make_patch(Decorate("sglang/other.py", "gone", "a"), name="last")
    pristine = contents(tree)
    with pytest.raises(PatchError, match="sglang/other.py has no gone"):
        patch_tree(tree, [*queue, failing], VERSION)
    assert contents(tree) == pristine


def test_a_tree_with_another_queue_is_refused(tree, tmp_path):
    queue = load_series(write_queue(tmp_path, QUEUE))
    patch_tree(tree, queue[:2], VERSION)
    patched = contents(tree)
    with pytest.raises(PatchError, match="holds another state of the queue; start from the pristine wheel"):
        patch_tree(tree, queue, VERSION)
    assert contents(tree) == patched


def test_a_tree_that_was_edited_since_is_refused(tree, tmp_path):
    queue = load_series(write_queue(tmp_path, QUEUE))
    patch_tree(tree, queue, VERSION)
    (tree / FILE).write_text("")
    with pytest.raises(PatchError, match="was edited after it was patched"):
        patch_tree(tree, queue, VERSION)


def test_work_that_was_cut_off_is_refused_rather_than_taken_for_pristine(tree, tmp_path, monkeypatch):
    queue = load_series(write_queue(tmp_path, QUEUE))
    import patches.apply

    write = patches.apply.write_atomic

    def cut_off(path, content):
        if path.name == "other.py":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(patches.apply, "write_atomic", cut_off)
    with pytest.raises(KeyboardInterrupt):
        patch_tree(tree, queue, VERSION)
    monkeypatch.undo()
    assert list(json.loads((tree / RECORD).read_text())["files"]) == [FILE, "sglang/other.py"]
    with pytest.raises(PatchError, match="was edited after it was patched"):
        patch_tree(tree, queue, VERSION)


def test_executable_bits_stay(tree, tmp_path):
    (tree / FILE).chmod(0o755)
    patch_tree(tree, load_series(write_queue(tmp_path, QUEUE)), VERSION)
    assert (tree / FILE).stat().st_mode & 0o777 == 0o755
