"""The pieces of SVG that pictures of memory consist of.

Lengths are in user units of pictures that are `WIDTH` wide, one of them about a pixel.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from pte_arenas.rules.tensors import escaped

SCOPE = "pte-map"
"""Class of every picture: a page may have other ones."""

WIDTH = 1080
FONT_SIZE = 11
CHAR_WIDTH = 6.7
"""Of a monospaced font at `FONT_SIZE`, rounded up."""
LINE = 15
THINNEST = 1
"""What would be narrower or lower is drawn so, that it can be seen at all."""
_EDGED = 4
"""Parts that are at least so large have an edge, which would hide smaller ones."""

FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"

# Class, light, dark. Text has a contrast of 4.5 and more on each of them.
PALETTE = (
    ("paper", "#ffffff", "#14171a"),
    ("ink", "#1b1f23", "#e6e9ec"),
    ("faint", "#57606a", "#a3adb7"),
    ("room", "#eceff2", "#262b31"),
    ("grid", "#c4cbd3", "#4a525b"),
    ("state", "#9fd8c4", "#1d6b53"),
    ("state-b", "#c3e8db", "#14513f"),
    ("input", "#a9cbf5", "#23518c"),
    ("output", "#f5c896", "#85510f"),
    ("activation", "#d5c9ef", "#55428a"),
    ("scratch", "#e8d9b5", "#5f4f22"),
    ("own", "#d5dbe1", "#3d464f"),
    ("use", "#11624a", "#8fe3c6"),
    ("live", "#8f7cc4", "#9d8bd6"),
    ("limit", "#b42318", "#ff8f85"),
)


_REACHED_BY_ARROWS, _REACHED_BY_TAB = (f' tabindex="{stop}" role="img"' for stop in (-1, 0))


class Panel(NamedTuple):
    """A picture of its own.

    Attributes:
        label: What it shows, for those who do not see it.
        content: SVG from (0, 0) on.
        height: Its height; all panels are `WIDTH` wide.
    """

    label: str
    content: str
    height: float

    @property
    def reachable(self) -> str:
        """The content, where the Tab key stops at the first item; arrow keys go on from there."""
        return self.content.replace(_REACHED_BY_ARROWS, _REACHED_BY_TAB, 1)


def theme() -> str:
    """The colours as CSS, light on paper and wherever dark is not asked for."""
    light, dark = _shades(1), _shades(2)
    return (
        f".{SCOPE} text{{font:{FONT_SIZE}px {FONT};white-space:pre}}.{SCOPE} .part"
        f"{{stroke-width:.5}}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
        f".{SCOPE} .thin{{stroke:none}}"
    )


def _shades(column: int) -> str:
    paper = PALETTE[0][column]
    fills = "".join(f".{SCOPE} .{row[0]}{{fill:{row[column]}}}" for row in PALETTE)
    return f".{SCOPE}{{background:{paper}}}.{SCOPE} .part{{stroke:{paper}}}{fills}"


def safe(text: str) -> str:
    """Text from a file for HTML and XML: nothing in it is markup or a control character."""
    return html.escape(escaped(text))


def text_width(text: str) -> float:
    """How wide a text is at most; of one that has been escaped for XML it is no measure."""
    return len(text) * CHAR_WIDTH


def rect(
    x: float, y: float, width: float, height: float, kind: str, inner: str = "", extra: str = ""
) -> str:
    """A rectangle; one that would be too thin to be seen is `THINNEST`."""
    width, height = max(width, THINNEST), max(height, THINNEST)
    if min(width, height) < _EDGED:
        kind += " thin"
    body = f">{inner}</rect>" if inner else "/>"
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
        f'height="{height:.2f}"{extra}{body}'
    )


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    """A line of text whose baseline is at `y`; it is escaped here."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.2f}" y="{y:.2f}"{where}>{safe(words)}</text>'


def paragraph(x: float, y: float, words: str, width: float) -> tuple[str, int]:
    """Text in as many lines as it needs, the first one's baseline at `y`, and their number."""
    printed = escaped(words)
    chars = max(1, int(width / CHAR_WIDTH))
    pieces = textwrap.wrap(printed, chars, drop_whitespace=False, break_on_hyphens=False)
    content = [
        f'<text class="ink" x="{x:.2f}" y="{y + row * LINE:.2f}">{html.escape(piece)}</text>'
        for row, piece in enumerate(pieces)
    ]
    return "".join(content), len(pieces)


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin horizontal or vertical line."""
    return rect(min(x1, x2), min(y1, y2), abs(x2 - x1), abs(y2 - y1), "grid")


def item(key: str, facts: Sequence[str]) -> tuple[str, str]:
    """What makes a shape one that can be pointed at and reached: its title, its attributes.

    Args:
        key: Shapes with the same key are the same thing.
        facts: Lines that say all about it.
    """
    title = f"<title>{chr(10).join(map(safe, facts))}</title>"
    return title, f' data-key="{key}"{_REACHED_BY_ARROWS}'


def fitted(width: float, height: float, *candidates: str) -> str:
    """The first of some labels that fits a box; none of them fits: empty."""
    if height >= FONT_SIZE + 2:
        for label in candidates:
            if text_width(escaped(label)) + 6 <= width:
                return label
    return ""


def caption(x: float, y: float, *candidates: str) -> str:
    """The first of some lines that ends before the picture does, or the last one."""
    return text(x, y, fitted(WIDTH - x, LINE, *candidates) or candidates[-1])


def ticks(length: int, most: float, *, binary: bool) -> range:
    """Round numbers from 0 to below `length` for an axis.

    Args:
        length: Where the axis ends.
        most: For how many labels there is room.
        binary: Whether the steps are powers of two, instead of 1, 2 or 5 times a power of ten.
    """
    steps = (
        factor * base**power
        for base, factors in [(2, (1,)) if binary else (10, (1, 2, 5))]
        for power in count()
        for factor in factors
    )
    return range(0, length, next(step for step in steps if step * max(most, 1) >= length))


def across(length: int, *, binary: bool, width: float = WIDTH) -> range:
    """`ticks` of an axis from left to right, with their labels on the right of each."""
    return ticks(length, width / (text_width(f"{length:,}") + 16), binary=binary)


def tick_mark(number: int, x: float, y: float) -> Iterator[str]:
    """A mark below an axis with its number, if that has room before the end of the picture."""
    label = f"{number:,}"
    yield line(x, y, x, y + 4)
    if x + 3 + text_width(label) <= WIDTH:
        yield text(x + 3, y + 14, label, "faint")
