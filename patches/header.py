"""Headers of patches: the module docstring of a queue file, in the manner of Debian's DEP-3.

Every field is required, `Touches` may repeat, an unknown or repeated field is an error, and a longer value goes on in
indented lines. README.md explains the fields.
"""

import dataclasses
import datetime
import re
from email.parser import HeaderParser

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from patches.errors import PatchError

FIELDS = ("Description", "Origin", "Forwarded", "Touches", "Applies-To", "Remove-When", "Last-Update")
ORIGIN = re.compile(r"vendor$|upstream, \S|backport, \S")
FORWARDED = re.compile(r"(no|not-needed), \S|https?://\S+$")
TOUCHES = re.compile(r"(?P<file>[\w./-]+\.py)(?: :: (?P<name>\S.*))?$")


@dataclasses.dataclass(frozen=True)
class Header:
    description: str  # first line: what the patch does; further lines: why
    origin: str
    forwarded: str
    touches: tuple[tuple[str, str | None], ...]  # (upstream file, qualified name inside it or None)
    applies_to: SpecifierSet
    remove_when: str
    last_update: datetime.date

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.splitlines()[0]


def parse_header(docstring: str | None, where: str) -> Header:
    """Reads `docstring` into a Header; raises PatchError naming `where` and the field at fault."""

    def wrong(found: str, remedy: str) -> PatchError:
        return PatchError(where, found, remedy)

    if not docstring:
        raise wrong("no header", "begin the file with a docstring that has the fields " + ", ".join(FIELDS))
    message = HeaderParser().parsestr(docstring.strip("\n"))
    if message.get_payload().strip() or message.defects:
        stray = message.get_payload().strip().splitlines() or [str(message.defects[0])]
        raise wrong(f"header line {stray[0]!r} is no field", "write 'Field: value' and indent the lines that go on")

    for name in set(message.keys()):
        if name not in FIELDS:
            raise wrong(f"unknown header field {name!r}", "use only " + ", ".join(FIELDS))
    values: dict[str, list[str]] = {}
    for name in FIELDS:
        values[name] = [text.strip() for text in message.get_all(name, [])]
        if not values[name] or not all(values[name]):
            raise wrong(f"header field {name!r} is missing or empty", "add it; README.md explains the fields")
        if len(values[name]) > 1 and name != "Touches":
            raise wrong(f"header field {name!r} stands {len(values[name])} times", "keep one")

    def checked(name: str, form: re.Pattern, wanted: str) -> str:
        text = values[name][0]
        if not form.match(text):
            raise wrong(f"{name} is {text!r}", f"write {wanted}")
        return text

    touches = []
    for text in values["Touches"]:
        target = TOUCHES.match(text)
        if not target:
            raise wrong(f"Touches is {text!r}", "write 'sglang/path/file.py :: Class.method'")
        touches.append((target["file"], target["name"]))
    try:
        applies_to = SpecifierSet(values["Applies-To"][0])
        last_update = datetime.date.fromisoformat(values["Last-Update"][0])
    except (InvalidSpecifier, ValueError) as error:
        raise wrong(str(error), "write Applies-To as a version specifier, Last-Update as YYYY-MM-DD") from None
    return Header(
        description="\n".join(line.strip() for line in values["Description"][0].splitlines()),
        origin=checked("Origin", ORIGIN, "'vendor', 'upstream, <commit or release>' or 'backport, <link>'"),
        forwarded=checked("Forwarded", FORWARDED, "'no, <reason>', 'not-needed, <reason>' or a link"),
        touches=tuple(touches),
        applies_to=applies_to,
        remove_when=values["Remove-When"][0],
        last_update=last_update,
    )
