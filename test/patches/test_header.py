"""Headers of patches: what is read, and one line for each way to get one wrong."""

import datetime

import pytest

from harness.patching import header_text
from patches.errors import PatchError
from patches.header import FIELDS, parse_header

GOOD = header_text("sglang/a.py :: Class.method\nTouches: sglang/b.py")


def test_every_field_is_read():
    header = parse_header(GOOD, "here")
    assert header.summary == "Make it right"
    assert header.description == "Make it right\nbecause it was wrong."
    assert header.touches == (("sglang/a.py", "Class.method"), ("sglang/b.py", None))
    assert header.applies_to.contains("1.2") and not header.applies_to.contains("0.9")
    assert header.last_update == datetime.date(2026, 11, 30)
    assert (header.origin, header.forwarded) == ("vendor", "no, nobody asked")
    assert header.remove_when == "upstream does it"


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "Description"])
def test_a_missing_field_is_named(field):
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(f"{field}:"))
    with pytest.raises(PatchError, match=f"^here: header field '{field}' is missing or empty; add it"):
        parse_header(text, "here")


@pytest.mark.parametrize("docstring", [None, "", "\n"])
def test_no_header_at_all_lists_the_fields(docstring):
    with pytest.raises(PatchError, match="^here: .*Description"):
        parse_header(docstring, "here")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("Origin: vendor", "Origin: somebody", "Origin is 'somebody'"),
        ("Origin: vendor", "Origin: upstream,", "Origin is 'upstream,'"),
        ("no, nobody asked", "no", "Forwarded is 'no'"),
        ("no, nobody asked", "soon", "Forwarded is 'soon'"),
        ("sglang/b.py", "b", "Touches is 'b'"),
        (">=1.0", "newest", "newest"),
        ("2026-11-30", "yesterday", "yesterday"),
        ("Remove-When: upstream does it", "Remove-When:", "'Remove-When' is missing or empty"),
        ("Remove-When:", "Removed-When:", "unknown header field 'Removed-When'"),
        ("Origin: vendor", "Origin: vendor\nOrigin: vendor", "'Origin' stands 2 times"),
        ("  because it was wrong.", "because it was wrong.", "line 'because it was wrong.' is no field"),
    ],
)
def test_a_wrong_value_is_quoted(old, new, found):
    with pytest.raises(PatchError) as error:
        parse_header(GOOD.replace(old, new), "here")
    assert found in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("forwarded", ["not-needed, ours alone", "https://example.org/pull/1"])
@pytest.mark.parametrize("origin", ["upstream, 0.5.18", "backport, https://example.org/commit/1"])
def test_the_other_forms_of_origin_and_forwarded_are_good(origin, forwarded):
    header = parse_header(GOOD.replace("vendor", origin).replace("no, nobody asked", forwarded), "here")
    assert (header.origin, header.forwarded) == (origin, forwarded)
