"""What each pattern matches, counted in small sources."""

import pytest

from harness.patching import FILE, text
from patches.patterns import Pattern, assign, call, expression, imports, raises
from patches.syntax import SourceFile

SOURCE = text("""
    import torchvision
    import torch, torchvision.io as io
    from torchvision.transforms import Resize
    import torchvision2

    LIMIT: int = 3

    def outer(self, value):
        self.x = f(value)
        self.x += g.f( value )
        first, self.y = pool.f(other), (a
            + b)
        if a+b > 1:
            raise ValueError("no")
        raise errors.ValueError
        def inner():
            h(f=1).f()
            raise MyValueError
        return f

    class Holder:
        size = f(1)
        def method(self):
            f(2)
""")


def count(pattern: Pattern, scope: str | None) -> int:
    source = SourceFile(FILE, SOURCE.encode())
    return len(source.search(source.find(scope, "test"), pattern))


@pytest.mark.parametrize(
    ("pattern", "scope", "hits"),
    [
        (call("f"), "outer", 4),  # a plain name, two attributes, one on the result of a call
        (call("g.f"), "outer", 1),
        (call("f", arg="value"), "outer", 2),
        (call("f", arg="  other"), "outer", 1),
        (call("h.f"), "outer", 0),
        (call("h"), "outer", 1),
        (call("f"), "outer.inner", 1),
        (call("f"), None, 0),  # the module's own statements only
        (call("f"), "Holder", 1),  # the class's own statements only
        (call("f"), "Holder.method", 1),
        (assign("self.x"), "outer", 2),
        (assign("self . y"), "outer", 0),  # inside a tuple: not the target
        (assign("LIMIT"), None, 1),
        (assign("size"), "Holder", 1),
        (expression("a + b"), "outer", 2),
        (expression("b + a"), "outer", 0),
        (expression("f"), "outer", 2),  # a callee and the result; neither an attribute nor a keyword
        (expression("g.f(value)"), "outer", 1),
        (imports("torchvision"), None, 3),
        (imports("torchvision.transforms"), None, 1),
        (imports("torch"), None, 1),
        (raises("ValueError"), "outer", 2),
        (raises("errors.ValueError"), "outer", 1),
        (raises("MyValueError"), "outer.inner", 1),
    ],
)
def test_number_of_matches(pattern, scope, hits):
    assert count(pattern, scope) == hits


def test_a_pattern_reads_as_what_it_looks_for():
    assert str(call("a.b")) == "call('a.b')"
    assert str(call("a.b", arg="x")) == "call('a.b', arg='x')"
    assert str(expression("a + b")) == "expression('a + b')"
