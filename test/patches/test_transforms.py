"""What each edit makes of a small file, before and after, and how it stops when its target is not as described."""

import difflib

import pytest

from harness.patching import FILE, edited, text
from patches.errors import MatchCountWrong, PatchError, TargetMoved
from patches.transforms import (
    AddField,
    AddImport,
    AppendItem,
    Decorate,
    Edit,
    Insert,
    Replace,
    after,
    assign,
    before,
    call,
    expression,
    imports,
    raises,
)

SOURCE = '''
    #!/usr/bin/env python
    # by upstream
    """What it does."""
    from __future__ import annotations

    import os   # odd   spacing stays
    import torchvision

    NAMES = [
        'one',   # the first
        "two",   # the second
    ]

    if os.name:
        class Pool(Base):
            """Holds rows."""
            size : int=1

            @property
            def rows( self ):
                """Counts."""
                # how many
                return value(self)  # a comment

            def grow(self, by):
                if by > 1: self.reset(by)
                total = (read(self)
                         + by)

                # keep it
                self.total = total
                raise ValueError(total)
    def value(pool): return pool.size
'''


def difference(*edits: Edit) -> list[str]:
    """The lines that the edits remove (-) and add (+), in order; every other line is the same, white space included."""
    lines = difflib.ndiff(text(SOURCE).splitlines(), edited(SOURCE, *edits).splitlines())
    return [line[0] + line[2:] for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        pytest.param(
            Decorate(FILE, "Pool.rows", "cached", module="sglang.ours"),
            ["+from sglang.ours import cached", "+        @cached"],
            id="a decorator goes outermost, inside an if block too",
        ),
        pytest.param(
            Decorate(FILE, "value", "limits.at_most(3)", module="sglang"),
            ["+from sglang import limits", "+@limits.at_most(3)"],
            id="a decorator with arguments imports its first name",
        ),
        pytest.param(
            Insert(FILE, "Pool.rows", "check(self)", module="sglang.ours", name="check"),
            ["+from sglang.ours import check", "+            check(self)"],
            id="start is behind the docstring",
        ),
        pytest.param(Insert(FILE, "Pool", "spare = 2", where="end"), ["+        spare = 2"], id="end of a class"),
        pytest.param(
            Insert(FILE, None, "if ready():\n    go()", where="end"),
            ["+if ready():", "+    go()"],
            id="end of the module, several lines",
        ),
        pytest.param(
            Insert(FILE, "Pool.grow", "look(total)", where=after(call("read"))),
            ["+            look(total)"],
            id="after the statement that holds the match",
        ),
        pytest.param(
            Insert(FILE, "Pool.grow", "look(by)", where=before(expression("by > 1"))),
            ["+            look(by)"],
            id="before the compound statement whose condition holds the match",
        ),
        pytest.param(
            Insert(FILE, "Pool.grow", "look(total)", where=before(raises("ValueError"))),
            ["+            look(total)"],
            id="before a raise",
        ),
        pytest.param(
            Replace(FILE, "value", expression("pool.size"), "size_of({match})", module="sglang.ours", name="size_of"),
            [
                "+from sglang.ours import size_of",
                "-def value(pool): return pool.size",
                "+def value(pool): return size_of(pool.size)",
            ],
            id="an expression, its source inside the new one",
        ),
        pytest.param(
            Replace(FILE, "Pool.grow", call("read"), "a if b else c"),
            ["-            total = (read(self)", "+            total = ((a if b else c)"],
            id="a new expression keeps its meaning",
        ),
        pytest.param(
            Replace(FILE, "Pool.grow", raises("ValueError"), "raise PoolError(by)"),
            ["-            raise ValueError(total)", "+            raise PoolError(by)"],
            id="a statement",
        ),
        pytest.param(
            Replace(FILE, "Pool.grow", assign("self.total"), "if by:\n    {match}\nelse:\n    pass"),
            ["+            if by:", "-            self.total = total", "+                self.total = total"]
            + ["+            else:", "+                pass"],
            id="a statement by several, the comment above stays",
        ),
        pytest.param(
            Replace(FILE, None, imports("torchvision"), "torchvision = lazy()", module="sglang.ours", name="lazy"),
            ["-import torchvision", "+from sglang.ours import lazy", "+torchvision = lazy()"],
            id="an import, and ours stands above its first use",
        ),
        pytest.param(AddImport(FILE, "import sys"), ["+import sys"], id="an import"),
        pytest.param(AddImport(FILE, "import torchvision"), [], id="an import that is there already"),
        pytest.param(
            AddField(FILE, "Pool", "spare: Annotated[int, 'rows'] = 0"),
            ["+        spare: Annotated[int, 'rows'] = 0"],
            id="a field stands behind the last field",
        ),
        pytest.param(AppendItem(FILE, "NAMES", "'three'"), ["+    'three',"], id="an item on a line of its own"),
    ],
)
def test_difference_that_an_edit_makes(edit, expected):
    assert difference(edit) == expected


def test_all_edits_of_a_file_are_made_at_once():
    assert difference(
        Insert(FILE, "Pool.rows", "check(self)", module="sglang.ours", name="check"),
        Decorate(FILE, "Pool.rows", "cached", module="sglang.ours"),
        Replace(FILE, "Pool.rows", call("value"), "count({match})", module="sglang.ours", name="check"),
    ) == [
        "+from sglang.ours import check",
        "+from sglang.ours import cached",
        "+        @cached",
        "+            check(self)",
        "-            return value(self)  # a comment",
        "+            return count(value(self))  # a comment",
    ]


def test_every_match_is_replaced_where_the_patch_says_how_many():
    edit = Replace(FILE, "f", call("g"), "h({match})", count=2)
    assert edited("def f():\n    return g(1) + g(2)\n", edit) == "def f():\n    return h(g(1)) + h(g(2))\n"


@pytest.mark.parametrize(
    ("before_edit", "after_edit"),
    [
        ("A = []", "A = ['x',]"),
        ("A = ['w']", "A = ['w', 'x']"),
        ("A: set = {'v',  'w'}", "A: set = {'v',  'w',  'x'}"),
        ("A = ('w',)", "A = ('w', 'x',)"),
        ("A = (\n    'v',  # 1\n    'w'  # 2\n)", "A = (\n    'v',  # 1\n    'w',  # 2\n    'x'\n)"),
        ("A = ('v',  # 1\n     'w')", "A = ('v',  # 1\n     'w',\n     'x')"),
        ("A = {\n    'w',\n}", "A = {\n    'w',\n    'x',\n}"),
        ("A = 'v', 'w'", "A = 'v', 'w', 'x'"),
    ],
)
def test_an_appended_item_looks_like_the_others(before_edit, after_edit):
    assert edited(before_edit + "\n", AppendItem(FILE, "A", "'x'")) == after_edit + "\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["  ", "\t"])
def test_new_lines_have_the_indent_and_the_line_ends_of_the_file(indent, newline):
    lines = ["def f():", f"{indent}g()", ""]
    new = edited(newline.join(lines), Insert(FILE, "f", "if a:\n    b()"))
    assert new == newline.join([lines[0], f"{indent}if a:", f"{indent * 2}b()", *lines[1:]])


@pytest.mark.parametrize(
    ("edit", "error", "found"),
    [
        (Decorate(FILE, "Pool.shrink", "cached"), TargetMoved, f"{FILE} has no Pool.shrink"),
        (Decorate("sglang/gone.py", "f", "cached"), TargetMoved, "upstream has no file sglang/gone.py"),
        (AppendItem(FILE, "OTHERS", "1"), TargetMoved, f"{FILE} assigns no OTHERS"),
        (
            Replace(FILE, "Pool.grow", call("absent"), "x"),
            MatchCountWrong,
            "call('absent') matches 0 times in Pool.grow",
        ),
        (Replace(FILE, "Pool.grow", expression("total"), "x"), MatchCountWrong, "matches 3 times in Pool.grow"),
        (Replace(FILE, "Pool.grow", call("read"), "x", count=2), MatchCountWrong, "matches 1 times in Pool.grow"),
        (Insert(FILE, "Pool.grow", "x()", where=after(call("absent"))), MatchCountWrong, "matches 0 times"),
        (AppendItem(FILE, "NAMES", "'one'"), MatchCountWrong, "NAMES already holds 'one'"),
        (AddField(FILE, "Pool", "size: int = 2"), MatchCountWrong, "Pool already has the field 'size'"),
        (AddField(FILE, "Pool", "size = 2"), PatchError, "'size = 2' is no field of a class"),
        (Insert(FILE, "Pool.grow", "x()", where="end"), PatchError, "ends with 'raise ValueError(total)'"),
        (Insert(FILE, "Pool.grow", "x()", where=after(call("self.reset"))), PatchError, "on the line of its `:`"),
        (Insert(FILE, "value", "x()"), PatchError, "the body of value stands on the line of its `:`"),
        (Insert(FILE, None, "x()"), PatchError, "where='start' in the module level"),
        (Insert(FILE, "Pool.grow", "x(", where="start"), PatchError, "'x(' is not Python"),
        (Insert(FILE, "Pool.grow", "x()", where="top"), PatchError, "where='top'"),
        (Replace(FILE, "Pool.grow", call("read"), "x = 1"), PatchError, "'x = 1' is no expression"),
        (Insert(FILE, "Pool.rows", "break"), PatchError, "does not compile when patched: 'break' outside loop"),
    ],
)
def test_what_stops_an_edit(edit, error, found):
    with pytest.raises(PatchError) as caught:
        edited(SOURCE, edit)
    assert type(caught.value) is error
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_defined_twice_is_a_wrong_match_count():
    source = "if a:\n    def f(): pass\nelse:\n    def f(): pass\n"
    with pytest.raises(MatchCountWrong, match="defines f 2 times"):
        edited(source, Decorate(FILE, "f", "cached"))


def test_a_file_that_does_not_parse_is_named():
    with pytest.raises(PatchError, match=f"^{FILE}: not readable"):
        edited("def f(:\n", Decorate(FILE, "f", "cached"))
