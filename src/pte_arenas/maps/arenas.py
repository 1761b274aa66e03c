"""Draws what a program plans in all, and its arenas with their slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pte_arenas.layout import ArenaLayout, ArenaSlot, ProgramLayout
from pte_arenas.maps.drawing import (
    LINE,
    WIDTH,
    Panel,
    across,
    caption,
    fitted,
    item,
    paragraph,
    rect,
    text,
    text_width,
    tick_mark,
)
from pte_arenas.maps.facts import access_text, accesses_of, slot_facts
from pte_arenas.rules.tensors import escaped
from pte_arenas.sizes import in_bytes

BAR = 24
_GAP = 8
MARGIN = 110  # left of the bars, for their names


def draw_sums(layout: ProgramLayout) -> Panel:
    """Draws planned bytes, with arenas and without, in the same scale."""
    rows = [("planned", layout.planned_bytes, list(_planned(layout)))]
    if layout.arenas:
        alone = [
            ("method", method.name, nbytes, "own")
            for method, nbytes in zip(layout.methods, layout.unshared_by_method, strict=True)
        ]
        rows.append(("without arenas", layout.unshared_bytes, alone))
    most = max([nbytes for _, nbytes, _ in rows] + [1])
    room = max(text_width(f"{nbytes:,}") for _, nbytes, _ in rows) + 8
    width = WIDTH - MARGIN - room
    content = []
    for number, (row, nbytes, parts) in enumerate(rows):
        y = number * (BAR + 8)
        content.append(text(MARGIN - 8, y + 16, row, "faint", "end"))
        x = float(MARGIN)
        for p, (what, name, size, kind) in enumerate(parts):
            if size:
                share = size / most * width
                part = f"{what} {name}"
                facts = [part, f"{in_bytes(size)}, {size / nbytes:.1%} of the bytes {row}"]
                title, extra = item(f"sum-{number}-{p}", facts)
                content.append(rect(x, y, share, BAR, f"part {kind}", title, extra))
                label = fitted(share, BAR, f"{part} {size:,}", part, name)
                content.append(text(x + 4, y + 16, label) if label else "")
                x += share
        content.append(text(x + 6, y + 16, f"{nbytes:,}"))
    label = "Planned bytes, with arenas and without"
    return Panel(label, "".join(content), len(rows) * (BAR + 8))


def _planned(layout: ProgramLayout) -> Iterator[tuple[str, str, int, str]]:
    for arena in layout.arenas:
        yield "arena", arena.name, arena.size, arena.lifetime
    for method in layout.methods:
        yield "method", method.name, method.planned_bytes, "own"


def draw_arena(layout: ProgramLayout, index: int) -> Panel:
    """Draws an arena from its first byte to its last one."""
    arena = layout.arenas[index]
    if arena.lifetime == "scratch":
        return _draw_users(layout, index)
    height = 30
    content = [rect(0, 0, WIDTH, height, "room")]
    scale = WIDTH / max(arena.size, 1)
    for s, (slot, accesses) in enumerate(zip(arena.slots, accesses_of(layout, index), strict=True)):
        if not slot.nbytes:
            continue
        width = slot.nbytes * scale
        facts = slot_facts(arena, slot, accesses)
        title, extra = item(slot_key(index, s), facts)
        kind = "part state-b" if s % 2 else "part state"
        content.append(rect(slot.offset * scale, 0, width, height, kind, title, extra))
        label = fitted(width, height, slot.fqn, short_name(slot.fqn))
        if label:
            content.append(text(slot.offset * scale + 4, 19, label))
    return Panel(
        f"Bytes of arena {arena.name}",
        "".join([*content, *_byte_axis(arena.size, height)]),
        height + 20,
    )


def _draw_users(layout: ProgramLayout, index: int) -> Panel:
    """Draws how much of a scratch arena each method uses."""
    arena = layout.arenas[index]
    content = []
    y = 0
    for method in layout.methods:
        for binding in method.bindings:
            if binding.arena == index:
                width = binding.used_bytes / max(arena.size, 1) * WIDTH
                facts = [f"{method.name} uses {in_bytes(binding.used_bytes)} of {arena.name}"]
                key = f"user-{index}-{y}"
                content.append(rect(0, y, WIDTH, LINE, "room"))
                if binding.used_bytes:
                    title, extra = item(key, facts)
                    content.append(rect(0, y, width, LINE, "part scratch", title, extra))
                used = f"{binding.used_bytes:,}"
                content.append(caption(4, y + 11, f"{method.name} {used}", used))
                y += LINE + 3
    label = f"Bytes of scratch arena {arena.name} that each method uses"
    return Panel(label, "".join([*content, *_byte_axis(arena.size, y)]), y + 20)


def _byte_axis(size: int, y: float) -> Iterator[str]:
    for tick in across(size, binary=True):
        yield from tick_mark(tick, tick / size * WIDTH, y)


def slot_key(arena: int, slot: int) -> str:
    """What a slot is called among the shapes of a page."""
    return f"slot-{arena}-{slot}"


def short_name(fqn: str) -> str:
    """The last part of a name, with a sign that there is more of it."""
    head, dot, tail = fqn.rpartition(".")
    return f"...{tail}" if dot and len(head) > 3 else fqn


# --- Rows ---

_STRIP = 120
_LONGEST_NAME, _LONGEST_TYPE = 320, 180  # units; what is longer takes several lines


def draw_slots(layout: ProgramLayout, index: int) -> Panel:
    """Draws a row for each slot: name, bytes, place in the arena, type, and declared use."""
    arena = layout.arenas[index]
    names = [slot.fqn for slot in arena.slots]
    ranges, types = list(map(range_text, arena.slots)), list(map(type_text, arena.slots))
    range_x = _widest(names, _LONGEST_NAME) + 2 * _GAP
    strip_x = range_x + _widest(ranges, WIDTH) + _GAP
    type_x = strip_x + _STRIP + _GAP
    use_x = type_x + _widest(types, _LONGEST_TYPE) + 2 * _GAP
    content = []
    y = 0.0
    for slot, name, where, kind, accesses in zip(
        arena.slots, names, ranges, types, accesses_of(layout, index), strict=True
    ):
        cells = [
            paragraph(0, y + 11, name, range_x - _GAP),
            paragraph(type_x, y + 11, kind, use_x - type_x - _GAP),
            paragraph(use_x, y + 11, access_text(accesses), WIDTH - use_x),
        ]
        content += [cell for cell, _ in cells]
        content.append(text(strip_x - _GAP, y + 11, where, "faint", "end"))
        content.append(draw_place(arena, slot, strip_x, y + 2, _STRIP))
        y += max(rows for _, rows in cells) * LINE + 3
    return Panel(f"Slots of arena {arena.name}", "".join(content), y)


def _widest(words: Iterable[str], most: float) -> float:
    return min(most, max((text_width(escaped(each)) for each in words), default=0))


def draw_place(arena: ArenaLayout, slot: ArenaSlot, x: float, y: float, width: float) -> str:
    """Draws where a slot lies in its arena, on a strip of its own."""
    scale = width / max(arena.size, 1)
    strip = rect(x, y, width, LINE - 5, "room")
    if not slot.nbytes:
        return strip
    left = min(slot.offset * scale, width - 1)
    return strip + rect(x + left, y, slot.nbytes * scale, LINE - 5, "use")


def range_text(slot: ArenaSlot) -> str:
    """The bytes of a slot."""
    return f"[{slot.offset:,}, {slot.end:,})"


def type_text(slot: ArenaSlot) -> str:
    """The dtype and the sizes of a slot."""
    return f"{slot.dtype} {list(slot.sizes)}"
