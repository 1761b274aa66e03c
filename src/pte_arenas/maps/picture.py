"""The map as one SVG picture."""

from __future__ import annotations

from collections.abc import Iterator

from pte_arenas.layout import ProgramLayout
from pte_arenas.maps.arenas import draw_arena, draw_slots, draw_sums
from pte_arenas.maps.drawing import (
    LINE,
    SCOPE,
    WIDTH,
    Panel,
    paragraph,
    rect,
    safe,
    text,
    text_width,
    theme,
)
from pte_arenas.maps.facts import arena_facts, method_facts, program_facts
from pte_arenas.maps.methods import draw_method
from pte_arenas.timeline import ProgramTimeline

_MARGIN = 24
_SPACE = 14

SCALE_NOTE = (
    "Everything is to scale; what would be thinner than a unit is drawn one unit thick. "
    "Neighbouring slots differ in shade."
)
KINDS = {
    "state": "state",
    "use": "where it is used",
    "scratch": "scratch arena",
    "own": "a method's memory",
    "input": "input",
    "output": "output",
    "activation": "activation",
    "live": "live bytes",
    "limit": "most live bytes",
}


def draw_svg(layout: ProgramLayout, timeline: ProgramTimeline, title: str) -> str:
    """Draws a program's arenas, slots and methods as an SVG picture.

    Args:
        layout: Of the program.
        timeline: Of the same program.
        title: Its name, such as its file name.

    Returns:
        The text of an SVG file. Names in it are escaped.
    """
    y = float(_MARGIN)
    content = []
    for panel in _panels(layout, timeline, title):
        content.append(f'<g transform="translate({_MARGIN} {y:.2f})">{panel.reachable}</g>')
        y += panel.height + _SPACE
    width, height = WIDTH + 2 * _MARGIN, round(y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="group" aria-label="Memory of {safe(title)}">'
        f"<style>{theme()}.{SCOPE} .heading text{{font-weight:bold}}</style>"
        f'<rect class="paper" width="{width}" height="{height}"/>{"".join(content)}</svg>\n'
    )


def _panels(layout: ProgramLayout, timeline: ProgramTimeline, title: str) -> Iterator[Panel]:
    yield _heading(f"{title}  {program_facts(layout)}")
    yield draw_sums(layout)
    yield draw_legend()
    for a, arena in enumerate(layout.arenas):
        yield _heading(f"arena {arena.name}  {', '.join(arena_facts(arena))}")
        yield draw_arena(layout, a)
        if arena.slots:
            yield draw_slots(layout, a)
    for m, times in enumerate(timeline.methods):
        yield _heading(f"method {times.name}  {', '.join(method_facts(layout, m, times))}")
        yield from draw_method(layout, times, m)


def _heading(words: str) -> Panel:
    content, rows = paragraph(0, 12, words, WIDTH)
    return Panel("", f'<g class="heading">{content}</g>', rows * LINE)


def draw_legend() -> Panel:
    """Draws what the colours mean."""
    x, y = 0.0, 0.0
    content = []
    for kind, meaning in KINDS.items():
        width = text_width(meaning) + 32
        if x + width > WIDTH:
            x, y = 0.0, y + LINE
        content += [rect(x, y + 2, 11, 11, kind), text(x + 16, y + 12, meaning)]
        x += width
    content.append(text(0, y + 12 + LINE, SCALE_NOTE, "faint"))
    return Panel("Legend", "".join(content), y + 2 * LINE)
