"""Draws what a method keeps in memory while its instructions run."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pte_arenas.layout import ArenaBinding, ArenaLayout, ProgramLayout
from pte_arenas.maps.arenas import short_name, slot_key
from pte_arenas.maps.drawing import (
    LINE,
    WIDTH,
    Panel,
    across,
    caption,
    fitted,
    item,
    line,
    rect,
    text,
    text_width,
    tick_mark,
    ticks,
)
from pte_arenas.maps.facts import accesses_of, listed_numbers, memory_name, slot_facts, tensor_facts
from pte_arenas.overlap import Places
from pte_arenas.peak import live_bytes
from pte_arenas.timeline import MethodTimeline, TensorLifetime

CHART = 240
"""Height of a memory in a chart."""
LIVE = 60
"""Height of the curve of live bytes above it."""
_GAP = 8


class _Axes:
    """Where bytes and instructions lie in a chart.

    Attributes:
        size: Bytes of the memory, at least 1.
        length: Number of instructions.
        top: Where the memory begins.
        left: Where the first instruction begins.
        width: Of all instructions together.
    """

    def __init__(self, size: int, length: int, top: float, left: float) -> None:
        self.size, self.length, self.top, self.left = max(size, 1), length, top, left
        self.width = WIDTH - left

    def x(self, instruction: float) -> float:
        return self.left + instruction / self.length * self.width

    def y(self, offset: float) -> float:
        return self.top + offset / self.size * CHART

    def draw(self) -> Iterator[str]:
        """Numbers and lines; offsets grow downwards."""
        yield rect(self.left, self.top, self.width, CHART, "room")
        bottom = self.top + CHART
        for offset in ticks(self.size, CHART / LINE / 2, binary=True):
            if self.y(offset) + 2 * LINE <= bottom:
                yield line(self.left - 4, self.y(offset), self.left, self.y(offset))
                yield text(self.left - _GAP, self.y(offset) + 9, f"{offset:,}", "faint", "end")
        yield text(self.left - _GAP, bottom - 1, f"{self.size:,}", "faint", "end")
        for instruction in across(self.length, width=self.width, binary=False):
            yield from tick_mark(instruction, self.x(instruction), bottom)


def draw_method(layout: ProgramLayout, times: MethodTimeline, index: int) -> Iterator[Panel]:
    """Draws each memory of a method: its own, then the arenas that it binds."""
    method = layout.methods[index]
    arenas = {binding.memory_id: layout.arenas[binding.arena] for binding in method.bindings}
    own = {
        memory_id: buffer.size
        for memory_id, buffer in enumerate(method.planned_buffers, start=1)
        if memory_id not in arenas and buffer.size
    }
    sizes = own | {memory_id: arena.size for memory_id, arena in arenas.items()}
    left = max((text_width(f"{size:,}") for size in sizes.values()), default=0) + _GAP
    for memory_id, size in sizes.items():
        if memory_id in own or arenas[memory_id].lifetime == "scratch":
            axes = _Axes(size, times.length, LINE + LIVE + 2 * _GAP, left)
            yield _draw_tensors(layout, times, index, memory_id, axes)
    for binding in method.bindings:
        arena = layout.arenas[binding.arena]
        if arena.lifetime == "state":
            axes = _Axes(arena.size, times.length, LINE + _GAP, left)
            yield _draw_slots(layout, times, binding, axes)


def tensor_key(method: int, value: int) -> str:
    """What a tensor is called among the shapes of a page."""
    return f"tensor-{method}-{value}"


def facts_of(
    layout: ProgramLayout, times: MethodTimeline, index: int, memory_id: int
) -> list[tuple[TensorLifetime, list[str]]]:
    """The tensors of one memory with all that is to be said about them."""
    tensors = times.tensors_of([memory_id])
    places = Places(tensors)
    name = memory_name(layout, layout.methods[index], memory_id)
    return [
        (tensor, tensor_facts(tensor, times, name, places.sharers(tensor, at_once=True)))
        for tensor in tensors
    ]


def _draw_tensors(
    layout: ProgramLayout, times: MethodTimeline, index: int, memory_id: int, axes: _Axes
) -> Panel:
    name = memory_name(layout, layout.methods[index], memory_id)
    described = [
        (tensor, facts)
        for tensor, facts in facts_of(layout, times, index, memory_id)
        if tensor.begin < tensor.end and tensor.nbytes
    ]
    content = [*_draw_live([tensor for tensor, _ in described], axes, times, name), *axes.draw()]
    # Smaller ones lie on top of larger ones, so that each can be pointed at.
    described.sort(key=lambda each: -each[0].nbytes * (each[0].end - each[0].begin))
    for tensor, facts in described:
        x, y = axes.x(tensor.begin), axes.y(tensor.offset)
        width = axes.x(tensor.end) - x
        height = axes.y(tensor.offset + tensor.nbytes) - y
        title, extra = item(tensor_key(index, tensor.value), facts)
        content.append(rect(x, y, width, height, f"part {tensor.role}", title, extra))
    content += _labels(described, axes, times)
    return Panel(
        f"{name} of method {times.name} over its instructions",
        "".join(content),
        axes.top + CHART + 20,
    )


def _labels(
    described: Sequence[tuple[TensorLifetime, list[str]]], axes: _Axes, times: MethodTimeline
) -> Iterator[str]:
    """Labels of the tensors that have room for one and that nothing lies on."""
    taken: list[tuple[float, float, float, float]] = []
    for tensor, _ in reversed(described):  # what lies on top first
        x, y = axes.x(tensor.begin), axes.y(tensor.offset)
        width = axes.x(tensor.end) - x
        height = axes.y(tensor.offset + tensor.nbytes) - y
        label = fitted(width, height, *_names(tensor, times))
        box = (x, y, x + width, y + height)
        if label and not any(_touch(box, other) for other in taken):
            yield text(x + 4, y + 11, label)
        taken.append(box)


def _names(tensor: TensorLifetime, times: MethodTimeline) -> Iterator[str]:
    if tensor.name:
        yield from (tensor.name, short_name(tensor.name))
    made = tensor.uses[0] if tensor.begin in tensor.uses[:1] else None
    if made is not None and tensor.role in {"activation", "output"}:
        operator = times.instructions[made].label.rpartition("::")[2]
        yield f"{operator} {tensor.nbytes:,}"
        yield operator
    else:
        yield f"{tensor.role} {tensor.value} {tensor.nbytes:,}"
        yield f"{tensor.role} {tensor.value}"


def _touch(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _draw_live(
    tensors: Sequence[TensorLifetime], axes: _Axes, times: MethodTimeline, name: str
) -> Iterator[str]:
    """The live bytes of each instruction, in the scale of the planned ones."""
    counts = live_bytes(tensors, times.length)
    peak = max(counts)
    at = times.label(counts.index(peak))
    words = f"{axes.size:,} bytes planned; at most {peak:,} live"
    yield caption(
        axes.left, 11, f"{name}: {words}, first at {at}", f"{words}, first at {at}", words
    )
    bottom = LINE + _GAP + LIVE
    yield rect(axes.left, bottom - LIVE, axes.width, LIVE, "room")
    points = [f"M{axes.left:.2f} {bottom}"]
    for instruction, count in enumerate(counts):
        if instruction == 0 or count != counts[instruction - 1]:
            points.append(f"H{axes.x(instruction):.2f}V{bottom - count / axes.size * LIVE:.2f}")
    points.append(f"H{axes.left + axes.width:.2f}V{bottom}Z")
    yield f'<path class="live" d="{"".join(points)}"/>'
    yield rect(axes.left, bottom - peak / axes.size * LIVE - 0.5, axes.width, 1, "limit")


def _draw_slots(
    layout: ProgramLayout, times: MethodTimeline, binding: ArenaBinding, axes: _Axes
) -> Panel:
    """Draws the slots of a state arena, and at which instructions the method uses them."""
    arena = layout.arenas[binding.arena]
    accesses = accesses_of(layout, binding.arena)
    uses = _uses_by_slot(arena, times.tensors_of([binding.memory_id]))
    words = "where the method uses its slots"
    content = [caption(axes.left, 11, f"arena {arena.name}: {words}", f"arena: {words}")]
    content += axes.draw()
    for s, slot in enumerate(arena.slots):
        if not slot.nbytes:
            continue
        y, height = axes.y(slot.offset), axes.y(slot.end) - axes.y(slot.offset)
        used = listed_numbers(sorted(uses[s]))
        facts = [
            *slot_facts(arena, slot, accesses[s]),
            f"{times.name} uses it at {used}"
            if used
            else f"no instruction of {times.name} uses it",
        ]
        title, extra = item(slot_key(binding.arena, s), facts)
        kind = "part state-b" if s % 2 else "part state"
        content.append(rect(axes.left, y, axes.width, height, kind, title, extra))
        content += _marks(uses[s], axes, y, height)
        label = fitted(axes.width, height, slot.fqn, short_name(slot.fqn))
        content.append(_free_label(label, uses[s], axes, y) if label else "")
    return Panel(
        f"arena {arena.name} in method {times.name} over its instructions",
        "".join(content),
        axes.top + CHART + 20,
    )


def _uses_by_slot(arena: ArenaLayout, tensors: Iterable[TensorLifetime]) -> Mapping[int, set[int]]:
    begins = [slot.offset for slot in arena.slots]
    uses: dict[int, set[int]] = defaultdict(set)
    for tensor in tensors:
        s = bisect_right(begins, tensor.offset) - 1
        if s >= 0 and tensor.nbytes:
            uses[s].update(tensor.uses)
    return uses


def _marks(uses: Iterable[int], axes: _Axes, y: float, height: float) -> Iterator[str]:
    """Where a slot is used; instructions in a row are one mark."""
    runs: list[list[int]] = []
    for instruction in sorted(uses):
        if runs and runs[-1][1] == instruction:
            runs[-1][1] += 1
        else:
            runs.append([instruction, instruction + 1])
    for begin, end in runs:
        yield rect(axes.x(begin), y, axes.x(end) - axes.x(begin), height, "use")


def _free_label(label: str, uses: Iterable[int], axes: _Axes, y: float) -> str:
    """A label in the first place where no mark lies under it; none if there is none."""
    width = text_width(label) + 8
    x = axes.left
    for instruction in sorted(uses):
        if axes.x(instruction) - x >= width:
            break
        x = max(x, axes.x(instruction + 1), axes.x(instruction) + 1)
    if x + width > axes.left + axes.width:
        return ""
    return text(x + 4, y + 11, label)
