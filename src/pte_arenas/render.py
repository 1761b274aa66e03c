"""Draws a layout for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pte_arenas.dtypes import name_of
from pte_arenas.layout import ArenaLayout, MethodLayout, ProgramLayout
from pte_arenas.rules.tensors import LONGEST_LIST, escaped, listed

if TYPE_CHECKING:
    from pte_arenas.verification import VerificationReport

BAR_WIDTH = 32
NAME_STYLE = "cyan"  # a colour, so that NO_COLOR leaves no escape sequence at all

_SHORT_MODES = {"read": "r", "write": "w", "read_write": "rw"}


def draw_layout(layout: ProgramLayout, title: str) -> Text:
    """Draws arenas with their slots, and methods with their own planned bytes.

    Args:
        layout: What to draw.
        title: Name of the program, such as its file name.

    Returns:
        Lines without a newline at the end. Names are escaped: nothing in them reaches a terminal
        as it is.
    """
    lines = [_summary(layout, title)]
    for a, arena in enumerate(layout.arenas):
        lines += [Text(), _arena_line(a, arena), *_slot_lines(arena, _accesses(layout, a))]
        if arena.lifetime == "scratch":
            lines += _use_lines(layout, a)
    if layout.methods:
        lines += [Text(), Text("methods, with the bytes of their own"), *_method_lines(layout)]
    return Text("\n").join(lines)


def draw_report(report: VerificationReport, title: str) -> RenderableType:
    """Draws what became of the test cases of a bundled program.

    Args:
        report: What to draw.
        title: Name of the file.
    """
    passed = sum(case.failure is None for case in report.cases)
    table = Table("suite", "method", "case", "largest difference", "result", box=None)
    for case in report.cases:
        gap = case.largest_difference
        table.add_row(
            str(case.suite),
            Text(escaped(case.method)),
            str(case.case),
            "" if gap is None else f"{gap:.3g}",
            Text("passed" if case.failure is None else escaped(case.failure)),
        )
    summary = f"{passed} of {_count(report.cases, 'case')} passed, rtol {report.rtol:g}, atol "
    return Group(Text(f"{escaped(title)}  {summary}{report.atol:g}"), Text(), table)


def draw_value(value: Any) -> str:
    """Draws an output: a tensor's dtype, sizes and first elements."""
    if not hasattr(value, "flatten"):
        return repr(value)
    elements = value.flatten()[: LONGEST_LIST + 1].tolist()
    shown = [f"{element:.6g}" if isinstance(element, float) else element for element in elements]
    return f"{name_of(value.dtype)} {list(value.shape)}  {listed(shown)}"


def _summary(layout: ProgramLayout, title: str) -> Text:
    counts = f"{_count(layout.methods, 'method')}, {_count(layout.arenas, 'arena')}"
    planned = f"{_bytes(layout.planned_bytes)} planned"
    if layout.arenas:
        planned += f" ({layout.unshared_bytes:,} if each method had its own)"
    return Text.assemble((escaped(title), NAME_STYLE), f"  {counts}, {planned}")


def _arena_line(index: int, arena: ArenaLayout) -> Text:
    device: str = arena.device_type
    if (arena.device_type, arena.device_index) != ("cpu", 0):
        device = f"{device}:{arena.device_index}"
    facts = [arena.lifetime, _bytes(arena.size), f"align {arena.alignment}", device]
    return Text.assemble(
        f"arena {index}  ", (escaped(arena.name), NAME_STYLE), "  ", "  ".join(facts)
    )


def _slot_lines(arena: ArenaLayout, accesses: Sequence[str]) -> list[Text]:
    width = max((len(f"{slot.end:,}") for slot in arena.slots), default=0)
    columns = [
        _left([escaped(slot.fqn) for slot in arena.slots]),
        [f"[{slot.offset:{width},}, {slot.end:{width},})" for slot in arena.slots],
        [draw_bar(slot.offset, slot.end, arena.size) for slot in arena.slots],
        _left([f"{slot.dtype} {list(slot.sizes)}" for slot in arena.slots]),
        accesses,
    ]
    return _rows(columns)


def _use_lines(layout: ProgramLayout, arena: int) -> list[Text]:
    """How much of a scratch arena each method uses."""
    used = {
        method.name: binding.used_bytes
        for method in layout.methods
        for binding in method.bindings
        if binding.arena == arena
    }
    size = layout.arenas[arena].size
    width = max((len(f"{end:,}") for end in used.values()), default=0)
    columns = [
        _left([escaped(name) for name in used]),
        [f"[{0:{width}}, {end:{width},})" for end in used.values()],
        [draw_bar(0, end, size) for end in used.values()],
    ]
    return _rows(columns)


def draw_bar(begin: int, end: int, size: int) -> str:
    """Draws where bytes lie in an arena of `size` bytes; they show however few they are."""
    if begin == end:
        return "." * BAR_WIDTH
    first = min(begin * BAR_WIDTH // size, BAR_WIDTH - 1)
    last = max(end * BAR_WIDTH // size, first + 1)
    return "." * first + "#" * (last - first) + "." * (BAR_WIDTH - last)


def _accesses(layout: ProgramLayout, arena: int) -> list[str]:
    """What each slot of an arena is used for, such as `encode w  decode rw`."""
    uses: list[list[str]] = [[] for _ in layout.arenas[arena].slots]
    for method in layout.methods:
        for binding in method.bindings:
            for access in binding.accesses if binding.arena == arena else ():
                uses[access.slot].append(f"{escaped(method.name)} {_SHORT_MODES[access.mode]}")
    return ["  ".join(use) for use in uses]


def _method_lines(layout: ProgramLayout) -> list[Text]:
    methods = layout.methods
    columns = [
        _left([escaped(method.name) for method in methods]),
        _right([f"{method.planned_bytes:,}" for method in methods]),
        [_bound_arenas(method, layout.arenas) for method in methods],
    ]
    return _rows(columns)


def _bound_arenas(method: MethodLayout, arenas: Sequence[ArenaLayout]) -> str:
    return "  ".join(
        f"{escaped(arenas[binding.arena].name)} on memory id {binding.memory_id}"
        for binding in method.bindings
    )


def _rows(columns: Sequence[Sequence[str]]) -> list[Text]:
    return [Text(f"  {'  '.join(cells)}".rstrip()) for cells in zip(*columns, strict=True)]


def _left(cells: Sequence[str]) -> list[str]:
    width = max(map(len, cells), default=0)
    return [cell.ljust(width) for cell in cells]


def _right(cells: Sequence[str]) -> list[str]:
    width = max(map(len, cells), default=0)
    return [cell.rjust(width) for cell in cells]


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"
