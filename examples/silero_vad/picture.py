"""Values over time, drawn as text."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Glyphs:
    """The characters of a picture; `levels` go from an empty cell to a full one."""

    levels: str
    wall: str
    corner: str
    floor: str
    tick: str


UNICODE = Glyphs(levels=" ▁▂▃▄▅▆▇█", wall="│", corner="└", floor="─", tick="┴")
ASCII = Glyphs(levels=" .:#", wall="|", corner="+", floor="-", tick="+")

TICK_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
TICK_COLUMNS = 5  # columns that the label of a tick needs

TIME_LABEL = "seconds"


@dataclass(frozen=True)
class Track:
    """One strip of the picture.

    Attributes:
        values: Values in [0, 1], evenly spaced over the whole time.
        labels: Text left of each row, from the top; their number is the height in rows.
    """

    values: Sequence[float]
    labels: tuple[str, ...]


def choose_glyphs(encoding: str | None) -> Glyphs:
    """Returns block characters where `encoding` has them, else ASCII."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


def draw_tracks(
    tracks: Sequence[Track], seconds: float, *, width: int = 80, glyphs: Glyphs = UNICODE
) -> str:
    """Draws tracks one below the other over a common time axis.

    A column shows the largest of the values that fall into it. All tracks have the same number
    of values, at least one.

    Args:
        tracks: What to draw, from the top.
        seconds: Time that the values span.
        width: Columns of the whole picture, labels included. A narrower one is drawn where there
            are fewer values.
        glyphs: Characters to draw with.
    """
    margin = max(len(label) for track in tracks for label in (*track.labels, TIME_LABEL))
    columns = max(1, min(width - margin - 2, len(tracks[0].values)))
    lines = [
        f"{label:>{margin}} {glyphs.wall}{cells}".rstrip()
        for track in tracks
        for label, cells in zip(track.labels, _draw_rows(track, columns, glyphs), strict=True)
    ]
    axis, times = _draw_axis(seconds, columns, glyphs)
    return "\n".join([*lines, f"{'':>{margin}} {axis}", f"{TIME_LABEL:>{margin}} {times}".rstrip()])


def _draw_rows(track: Track, columns: int, glyphs: Glyphs) -> list[str]:
    count, rows = len(track.values), len(track.labels)
    full = len(glyphs.levels) - 1
    heights = [
        _height(max(track.values[column * count // columns : (column + 1) * count // columns]))
        * rows
        * full
        for column in range(columns)
    ]
    return [
        "".join(glyphs.levels[min(full, max(0, round(height) - row * full))] for height in heights)
        for row in reversed(range(rows))
    ]


def _height(value: float) -> float:
    return min(1.0, max(0.0, value)) if isfinite(value) else 0.0


def _draw_axis(seconds: float, columns: int, glyphs: Glyphs) -> tuple[str, str]:
    """The floor with its ticks, and the times below them; both begin under the wall."""
    steps = (step for step in TICK_SECONDS if step * columns / seconds >= TICK_COLUMNS)
    step = next(steps, seconds)
    floor_cells = [glyphs.floor] * columns
    times = " " * (columns + 1)
    for tick in range(floor(seconds / step) + 1):
        column = min(columns - 1, floor(tick * step / seconds * columns))
        floor_cells[column] = glyphs.tick
        text = f"{tick * step:g}"
        begin = max(0, min(column + 1, len(times) - len(text)))
        times = times[:begin] + text + times[begin + len(text) :]
    return glyphs.corner + "".join(floor_cells), times
