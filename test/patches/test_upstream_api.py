"""The guard in the other direction: which upstream names our files stand on, and what counts as a change of one."""

import pytest

from harness.patching import make_patch, text
from harness.upstream import make_wheel
from patches.errors import PatchError
from patches.release import Release
from patches.transforms import Decorate
from patches.upstream_api import differences, make_record
from patches.upstream_names import upstream_uses

UPSTREAM = {
    "sglang/srt/__init__.py": "from .pool import *\n",
    "sglang/srt/pool.py": text("""
        from sglang.srt.base import Base
        import os
        from dataclasses import dataclass

        LIMIT = 3

        def resize(pool, size, *, step=1):
            pass

        @dataclass
        class Row:
            index: int
            size: int = 0

        class Pool(Base):
            def grow(self, by):
                pass
    """),
    "sglang/srt/base.py": "class Base:\n    def __init__(self, size, *rest):\n        pass\n    def free(self): pass\n",
    "sglang/srt/models/llama.py": "",
}
OURS = text("""
    import torch
    import sglang.srt.pool as pool_module
    from sglang.srt import Pool as UpstreamPool, resize
    from sglang.srt.pool import Row
    from .helper import nothing

    class OurPool(UpstreamPool):
        def grow(self, by):
            super().free()
            self.ours = Row(1)
            return pool_module.LIMIT

        def ours_alone(self): ...

    def use(pool):
        from sglang.srt import models
        resize(pool, 1)
        UpstreamPool(3)
""")


@pytest.fixture
def uses(tmp_path):
    (tmp_path / "ours.py").write_text(OURS)
    (tmp_path / "helper.py").write_text("def nothing(): pass\n")
    files = {"sglang/srt/extra/ours.py": tmp_path / "ours.py", "sglang/srt/extra/helper.py": tmp_path / "helper.py"}
    return upstream_uses(
        files, [make_patch(Decorate("sglang/srt/base.py", "Base.free", "cached", module="sglang.srt.extra.ours"))]
    )


@pytest.fixture
def release(tmp_path):
    def make(old="", new="", file="sglang/srt/pool.py"):
        assert old in UPSTREAM[file]
        files = {**UPSTREAM, file: UPSTREAM[file].replace(old, new) if old else UPSTREAM[file]}
        return Release(make_wheel(tmp_path / f"{file}{old}{new}".encode().hex()[-60:], files))

    return make


def test_names_are_collected_with_the_ways_of_their_use(uses):
    assert uses["sglang.srt.Pool"] == {"import", "call"}
    assert uses["sglang.srt.resize"] == {"import", "call"}
    assert uses["sglang.srt.pool.Row"] == {"import", "call"}
    assert uses["sglang.srt.pool"] == {"import"}
    assert uses["sglang.srt.pool.LIMIT"] == {"member"}
    assert uses["sglang.srt.Pool.grow"] == {"override"}
    assert uses["sglang.srt.Pool.free"] == {"member"}
    assert uses["sglang.srt.base.Base.free"] == {"edit"}
    assert not any("extra" in name or "torch" in name for name in uses)


def test_the_record_follows_reexports_base_classes_and_dataclasses(uses, release):
    record = make_record(uses, release())
    assert record["sglang.srt.Pool"] == {
        "kind": "class",
        "parameters": ["self", "size", "*rest"],
        "used": ["call", "import"],
    }
    assert record["sglang.srt.resize"]["parameters"] == ["pool", "size", "step= keyword-only"]
    assert record["sglang.srt.pool.Row"]["parameters"] == ["index", "size="]
    assert record["sglang.srt.Pool.free"]["parameters"] == ["self"]
    assert record["sglang.srt.pool.LIMIT"]["kind"] == "attribute"
    assert record["sglang.srt.models"]["kind"] == "module"
    assert "sglang.srt.Pool.ours_alone" not in record and "sglang.srt.Pool.ours" not in record


@pytest.mark.parametrize("name", ["Pool(Base)", "def resize"])
def test_an_import_that_the_pin_lacks_is_an_error(uses, release, name):
    with pytest.raises(PatchError, match="^sglang 1.0: has no sglang.srt.*, which our files import; correct"):
        make_record(uses, release(name, name.replace("Pool", "Pond").replace("resize", "scale")))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("def resize", "def scale", "sglang.srt.resize is gone; nearest in sglang.srt: nothing alike"),
        ("LIMIT", "LIMITS", "sglang.srt.pool.LIMIT is gone; nearest in sglang.srt.pool: LIMITS"),
        (
            "size, *, step=1",
            "step=1",
            "sglang.srt.resize took (pool, size, step= keyword-only) and takes (pool, step=)",
        ),
        ("(pool, size, ", "(pool, size, by, ", "sglang.srt.resize took"),
        ("(pool, size, ", "(pool, by=1, size=2, ", "sglang.srt.resize took"),
        ("(self, by)", "(self, by, at=0)", "sglang.srt.Pool.grow took (self, by) and takes (self, by, at=)"),
        (
            "index: int",
            "index: int\n    owner: int",
            "sglang.srt.pool.Row took (index, size=) and takes (index, owner, size=)",
        ),
        (
            "class Row:\n    index: int\n    size: int = 0",
            "def Row(index): pass",
            "sglang.srt.pool.Row was a class and is a function",
        ),
    ],
)
def test_a_change_that_breaks_a_use_is_reported(uses, release, old, new, line):
    (found,) = differences(make_record(uses, release()), release(old, new))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("size, *, step=1", "size, by=1, *rest, step=1, other=2, **more"),
        ("size: int = 0", "size: int = 0\n    x: int = 1"),
    ],
)
def test_optional_parameters_behind_the_old_ones_break_no_call(uses, release, old, new):
    assert differences(make_record(uses, release()), release(old, new)) == []


def test_a_changed_base_class_is_seen_through_the_class_that_we_use(uses, release):
    changed = release("(self, size, *rest)", "(self, size, device, *rest)", "sglang/srt/base.py")
    assert "sglang.srt.Pool took (self, size, *rest) and takes (self, size, device, *rest)" in differences(
        make_record(uses, release()), changed
    )
