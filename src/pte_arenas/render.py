"""Draws a layout for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pte_arenas.columns import left, right, rows_of
from pte_arenas.dtypes import name_of
from pte_arenas.layout import ArenaLayout, MethodLayout, ProgramLayout
from pte_arenas.rules.tensors import LONGEST_LIST, escaped, listed
from pte_arenas.sizes import counted, in_bytes

if TYPE_CHECKING:
    from pte_arenas.verification import VerificationReport

BAR_WIDTH = 32
SHORTEST_BAR = 4
NAME_STYLE = "cyan"  # a colour, so that NO_COLOR leaves no escape sequence at all

_SHORT_MODES = {"read": "r", "write": "w", "read_write": "rw"}


def draw_layout(layout: ProgramLayout, title: str, columns: int | None = None) -> Text:
    """Draws arenas with their slots, and methods with their own planned bytes.

    Args:
        layout: What to draw.
        title: Name of the program, such as its file name.
        columns: Where bars have to be shorter, so that lines of slots fit if they can.

    Returns:
        Lines without a newline at the end. Names are escaped: nothing in them reaches a terminal
        as it is.
    """
    lines = [_summary(layout, title)]
    for a, arena in enumerate(layout.arenas):
        rows = _rows_of_arena(layout, a, BAR_WIDTH)
        excess = max((row.cell_len for row in rows), default=0) - (columns or sys.maxsize)
        if excess > 0:
            rows = _rows_of_arena(layout, a, max(BAR_WIDTH - excess, SHORTEST_BAR))
        lines += [Text(), _arena_line(a, arena), *rows]
    if layout.methods:
        lines += [Text(), *_method_lines(layout)]
    lines += [Text(line) for line in _hints(layout)]
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
    summary = (
        f"{passed} of {counted(len(report.cases), 'case')} passed, rtol {report.rtol:g}, atol "
    )
    return Group(Text(f"{escaped(title)}  {summary}{report.atol:g}"), Text(), table)


def draw_value(value: Any) -> str:
    """Draws an output: a tensor's dtype, sizes and first elements."""
    if not hasattr(value, "flatten"):
        return repr(value)
    elements = value.flatten()[: LONGEST_LIST + 1].tolist()
    shown = [f"{element:.6g}" if isinstance(element, float) else element for element in elements]
    return f"{name_of(value.dtype)} {list(value.shape)}  {listed(shown)}"


def _summary(layout: ProgramLayout, title: str) -> Text:
    counts = f"{counted(len(layout.methods), 'method')}, {counted(len(layout.arenas), 'arena')}"
    planned = f"{in_bytes(layout.planned_bytes)} planned"
    if layout.arenas:
        planned += f" ({layout.unshared_bytes:,} if each method had its own)"
    return Text.assemble((escaped(title), NAME_STYLE), f"  {counts}, {planned}")


def _arena_line(index: int, arena: ArenaLayout) -> Text:
    device: str = arena.device_type
    if (arena.device_type, arena.device_index) != ("cpu", 0):
        device = f"{device}:{arena.device_index}"
    facts = [arena.lifetime, in_bytes(arena.size), f"align {arena.alignment}", device]
    return Text.assemble(
        f"arena {index}  ", (escaped(arena.name), NAME_STYLE), "  ", "  ".join(facts)
    )


def _rows_of_arena(layout: ProgramLayout, index: int, bar: int) -> list[Text]:
    arena = layout.arenas[index]
    rows = _slot_lines(arena, _accesses(layout, index), bar)
    return rows + _use_lines(layout, index, bar) if arena.lifetime == "scratch" else rows


def _slot_lines(arena: ArenaLayout, accesses: Sequence[str], bar: int) -> list[Text]:
    width = max((len(f"{slot.end:,}") for slot in arena.slots), default=0)
    columns = [
        left([escaped(slot.fqn) for slot in arena.slots]),
        [f"[{slot.offset:{width},}, {slot.end:{width},})" for slot in arena.slots],
        [draw_bar(slot.offset, slot.end, arena.size, bar) for slot in arena.slots],
        left([f"{slot.dtype} {list(slot.sizes)}" for slot in arena.slots]),
        accesses,
    ]
    return rows_of(columns)


def _use_lines(layout: ProgramLayout, arena: int, bar: int) -> list[Text]:
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
        left([escaped(name) for name in used]),
        [f"[{0:{width}}, {end:{width},})" for end in used.values()],
        [draw_bar(0, end, size, bar) for end in used.values()],
    ]
    return rows_of(columns)


def draw_bar(begin: int, end: int, size: int, width: int = BAR_WIDTH) -> str:
    """Draws where bytes lie in an arena of `size` bytes; they show however few they are."""
    if begin == end:
        return "." * width
    first = min(begin * width // size, width - 1)
    last = max(end * width // size, first + 1)
    return "." * first + "#" * (last - first) + "." * (width - last)


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
        left(["methods", *(f"  {escaped(method.name)}" for method in methods)]),
        right(["own bytes", *(f"{method.planned_bytes:,}" for method in methods)]),
    ]
    if layout.arenas:
        alone = (f"{nbytes:,}" for nbytes in layout.unshared_by_method)
        columns.append(right(["without arenas", *alone]))
    columns.append(["", *(_memories(method, layout.arenas) for method in methods)])
    return rows_of(columns, indent=0)


def _hints(layout: ProgramLayout) -> Iterator[str]:
    """Which memory ids of a file without arenas its methods may share."""
    methods = layout.methods
    if layout.arenas or len(methods) < 2:
        return
    shortest = min(len(method.planned_buffers) for method in methods)
    for memory_id in range(2, shortest + 1):
        sizes = {method.planned_buffers[memory_id - 1].size for method in methods}
        if len(sizes) == 1 and 0 not in sizes:
            yield ""
            yield (
                f"memory id {memory_id} is as large in every method: if they share it, "
                f"pte-arenas adopt --memory-id {memory_id} makes it an arena"
            )


def _memories(method: MethodLayout, arenas: Sequence[ArenaLayout]) -> str:
    """Where a method's bytes are: its own memory ids if it has several, then arenas."""
    bound = {binding.memory_id for binding in method.bindings}
    own = [
        f"{buffer.size:,} on memory id {memory_id}"
        for memory_id, buffer in enumerate(method.planned_buffers, start=1)
        if memory_id not in bound and buffer.size
    ]
    shared = [
        f"{escaped(arenas[binding.arena].name)} on memory id {binding.memory_id}"
        for binding in method.bindings
    ]
    return "  ".join([*(own if len(own) > 1 else []), *shared])
