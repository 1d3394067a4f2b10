"""How configurations look: each by marker, line and hatch as well as by a colour of its own lightness."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib

matplotlib.use("agg")  # there may be no display

MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "--")
STAGE_COLOURS = ("0.35", "0.95", "0.6", "0.85", "0.45")  # neighbours lie apart in lightness
FIGURE = (7.5, 4.8)
DPI = 130


@dataclass(frozen=True)
class Style:
    """One configuration's look in every picture."""

    marker: str
    line: object
    hatch: str
    colour: tuple[float, ...]


def styles_for(names: Sequence[str]) -> dict[str, Style]:
    """Returns a style per name; the first, plain decoding as a rule, is black."""
    shades = matplotlib.colormaps["viridis"].resampled(256)
    last = max(len(names) - 1, 1)
    return {
        name: Style(
            MARKERS[index % len(MARKERS)],
            LINES[index % len(LINES)],
            HATCHES[index % len(HATCHES)],
            (0.0, 0.0, 0.0, 1.0) if index == 0 else shades(0.1 + 0.7 * index / last),
        )
        for index, name in enumerate(names)
    }
