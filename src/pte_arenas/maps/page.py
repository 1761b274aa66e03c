"""The map as a page: the same pictures, with details, search and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

from pte_arenas.layout import ArenaLayout, ProgramLayout
from pte_arenas.maps.arenas import (
    draw_arena,
    draw_place,
    draw_sums,
    range_text,
    slot_key,
    type_text,
)
from pte_arenas.maps.drawing import LINE, SCOPE, WIDTH, Panel, safe, theme
from pte_arenas.maps.facts import (
    access_text,
    accesses_of,
    arena_facts,
    lifetime_text,
    memory_name,
    method_facts,
    program_facts,
    slot_facts,
)
from pte_arenas.maps.methods import draw_method, facts_of, tensor_key
from pte_arenas.maps.picture import draw_legend
from pte_arenas.sizes import counted
from pte_arenas.timeline import MethodTimeline, ProgramTimeline

_PLACE = 150  # width of a slot's strip


def draw_html(layout: ProgramLayout, timeline: ProgramTimeline, title: str) -> str:
    """Draws a program's arenas, slots and methods as a page that needs nothing else.

    Args:
        layout: Of the program.
        timeline: Of the same program.
        title: Its name, such as its file name.

    Returns:
        The text of an HTML file. Names in it are escaped.
    """
    style = theme() + _resource("page.css")
    body = "".join(
        [
            _header(layout, title),
            *(_arena_section(layout, a) for a in range(len(layout.arenas))),
            *(_method_section(layout, times, m) for m, times in enumerate(timeline.methods)),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>Memory of {safe(title)}</title><style>{style}</style></head><body>"
        f'{body}</main><div id="details" role="status" aria-live="polite"></div>'
        f"<script>{_resource('page.js')}</script></body></html>\n"
    )


def draw_fragment(layout: ProgramLayout) -> str:
    """Draws the sums and the arenas for a notebook: no script, and no style for anything else."""
    sections = "".join(_arena_section(layout, a) for a in range(len(layout.arenas)))
    facts, sums = safe(program_facts(layout)), _figure(draw_sums(layout))
    return f"<div><style>{theme()}</style><p>{facts}</p>{sums}{sections}</div>"


def _resource(name: str) -> str:
    return files("pte_arenas.maps").joinpath(name).read_text(encoding="utf-8")


def _header(layout: ProgramLayout, title: str) -> str:
    return (
        f"<header><h1>{safe(title)}</h1><p>{safe(program_facts(layout))}</p></header>"
        '<form id="find" role="search"><label>Search <input type="search" id="query" '
        'autocomplete="off" spellcheck="false"></label> <button>Next</button> '
        '<label>Zoom of methods <select id="zoom"><option value="1">1<option value="2">2'
        '<option value="4">4<option value="8">8</select></label> '
        '<output id="found" for="query"></output></form>'
        f"<main><section>{_figure(draw_sums(layout))}{_figure(draw_legend())}</section>"
    )


def _arena_section(layout: ProgramLayout, index: int) -> str:
    arena = layout.arenas[index]
    heading = f"<h2>arena {safe(arena.name)}</h2><p>{safe(', '.join(arena_facts(arena)))}</p>"
    table = ""
    if arena.slots:
        accesses = accesses_of(layout, index)
        table = _table(
            "slots",
            ["slot", "bytes", "place", "type", "start", "declared use"],
            (_slot_row(arena, index, s, accesses[s]) for s in range(len(arena.slots))),
        )
    return f"<section>{heading}{_figure(draw_arena(layout, index))}{table}</section>"


def _slot_row(arena: ArenaLayout, a: int, s: int, accesses: Mapping[str, Sequence[str]]) -> str:
    slot = arena.slots[s]
    strip = draw_place(arena, slot, 0, 0, _PLACE)
    place = (
        f'<svg class="{SCOPE}" width="{_PLACE}" height="{LINE - 5}" aria-hidden="true">'
        f"{strip}</svg>"
    )
    cells = [
        safe(slot.fqn),
        range_text(slot),
        place,
        type_text(slot),
        "values" if slot.data_buffer_idx else "zeros",
        safe(access_text(accesses)),
    ]
    return _row(slot_key(a, s), slot_facts(arena, slot, accesses), cells, stop=True)


def _method_section(layout: ProgramLayout, times: MethodTimeline, index: int) -> str:
    facts = ", ".join(method_facts(layout, index, times))
    panels = draw_method(layout, times, index)
    figures = "".join(_figure(panel, "figure chart") for panel in panels)
    memories = sorted({tensor.memory_id for tensor in times.tensors})
    rows = [row for memory_id in memories for row in _tensor_rows(layout, times, index, memory_id)]
    tensors = _table("tensors", ["tensor", "role", "memory", "bytes", "type", "life"], rows)
    instructions = "".join(f"<li>{safe(each.label)}</li>" for each in times.instructions)
    return (
        f"<section><h2>method {safe(times.name)}</h2><p>{safe(facts)}</p>{figures}"
        f"<details><summary>{counted(len(rows), 'planned tensor')}</summary>{tensors}</details>"
        f"<details><summary>{counted(len(times.instructions), 'instruction')}</summary>"
        f'<ol start="0">{instructions}</ol></details></section>'
    )


def _tensor_rows(
    layout: ProgramLayout, times: MethodTimeline, index: int, memory_id: int
) -> Iterator[str]:
    memory = memory_name(layout, layout.methods[index], memory_id)
    for tensor, facts in facts_of(layout, times, index, memory_id):
        cells = [
            safe(times.describe(tensor)),
            tensor.role,
            safe(memory),
            f"[{tensor.offset:,}, {tensor.offset + tensor.nbytes:,})",
            f"{tensor.dtype} {list(tensor.sizes)}",
            safe(lifetime_text(tensor, times)),
        ]
        yield _row(tensor_key(index, tensor.value), facts, cells, stop=False)


def _table(kind: str, columns: Sequence[str], rows: Iterable[str]) -> str:
    heads = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(key: str, facts: Sequence[str], cells: Sequence[str], *, stop: bool) -> str:
    body = "".join(f"<td>{cell}</td>" for cell in cells)
    said = "\n".join(map(safe, facts))
    return f'<tr data-key="{key}" data-facts="{said}" tabindex="{0 if stop else -1}">{body}</tr>'


def _figure(panel: Panel, kind: str = "figure") -> str:
    return (
        f'<div class="wide"><svg class="{SCOPE} {kind}" viewBox="0 0 {WIDTH} {panel.height:g}" '
        f'role="group" aria-label="{safe(panel.label)}">{panel.reachable}</svg></div>'
    )
