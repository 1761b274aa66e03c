"""Compares the planned bytes of a program with limits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from pte_arenas.errors import ArenaError
from pte_arenas.layout import ArenaLayout, MethodLayout, ProgramLayout
from pte_arenas.lifetimes import read_both
from pte_arenas.names import nearest
from pte_arenas.peak import find_peak
from pte_arenas.rules.tensors import quoted
from pte_arenas.timeline import MethodTimeline, ProgramTimeline

TOTAL = "total"
LARGEST = 5
"""How many of what lies in a memory a report names."""


class _Budget(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Occupant(_Budget):
    """A slot, or a tensor that is live where most bytes of a method's memory are."""

    name: str
    nbytes: int


class MemoryPart(_Budget):
    """An arena, or one planned buffer of a method.

    Attributes:
        kind: `arena` or `method`.
        name: Of the arena or the method.
        memory_id: Of the method's planned buffer; None for an arena.
        nbytes: Planned bytes.
        user: For a scratch arena the method that needs most of it.
        peak: For a method, or the user of a scratch arena: how many bytes are live at once.
        at: The instruction where they are, with its index in front.
        largest: The largest slots, or the largest tensors that are live there.
    """

    kind: str
    name: str
    memory_id: int | None = None
    nbytes: int
    user: str = ""
    peak: int | None = None
    at: str = ""
    largest: tuple[Occupant, ...] = ()


class BudgetLine(_Budget):
    """What one limit is about.

    Attributes:
        name: As given.
        meaning: What it stands for, such as `arena 'state'`.
        limit: Bytes that it may have.
        planned: Bytes that it has.
        parts: What it consists of, the largest first.
    """

    name: str
    meaning: str
    limit: int
    planned: int
    parts: tuple[MemoryPart, ...] = ()

    @property
    def excess(self) -> int:
        """Bytes above the limit; negative where there is room."""
        return self.planned - self.limit


class BudgetReport(_Budget):
    """Every limit, in the order given."""

    lines: tuple[BudgetLine, ...]

    @property
    def kept(self) -> bool:
        """Whether no limit is exceeded."""
        return all(line.excess <= 0 for line in self.lines)


def check_budget(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    limits: Mapping[str, int],
    regions: Mapping[str, Sequence[str]] | None = None,
) -> BudgetReport:
    """Compares planned bytes with limits, as if every method were loaded at once.

    A memory is `total` (the program's planned bytes), `arena:NAME`, `method:NAME` (a method's own
    planned buffers) or `id:N` (the buffers of one memory id, of every method that has it for
    itself). A limit is for one of these, for a region, or for an arena or a method by its bare
    name. One other name is taken for a memory that holds the whole program, as long as no regions
    are given.

    Args:
        source: Path of a `.pte` file, or its bytes.
        limits: Bytes by name.
        regions: Names for several memories together, such as `{"SRAM": ["arena:tmp", "id:1"]}`.

    Raises:
        ArenaError: A name is not known, or ambiguous.
        InvalidProgramError: The program is not valid; see `read_timeline`.
        OSError: The file cannot be read.
    """
    layout, timeline = read_both(source)
    parts = tuple(_parts(layout, timeline))
    memories = _Memories(layout, parts, regions or {})
    lines = []
    for name, limit in limits.items():
        meaning, chosen = memories.find(name, limits)
        chosen = sorted(chosen, key=lambda part: -part.nbytes)
        planned = sum(part.nbytes for part in chosen)
        lines.append(
            BudgetLine(
                name=name, meaning=meaning, limit=limit, planned=planned, parts=tuple(chosen)
            )
        )
    return BudgetReport(lines=tuple(lines))


class _Memories:
    """Finds what a name stands for."""

    def __init__(
        self,
        layout: ProgramLayout,
        parts: Sequence[MemoryPart],
        regions: Mapping[str, Sequence[str]],
    ) -> None:
        self._parts = parts
        arenas = [arena.name for arena in layout.arenas]
        methods = [method.name for method in layout.methods]
        ids = range(
            1, max((len(method.planned_buffers) for method in layout.methods), default=0) + 1
        )
        self._known: dict[str, tuple[str, list[MemoryPart]]] = {
            TOTAL: ("the whole program", list(parts))
        }
        for kind, names in (("arena", arenas), ("method", methods)):
            for name in names:
                found = [part for part in parts if (part.kind, part.name) == (kind, name)]
                self._known[f"{kind}:{name}"] = f"{kind} {quoted(name)}", found
        for memory_id in ids:
            found = [part for part in parts if part.memory_id == memory_id]
            self._known[f"id:{memory_id}"] = f"memory id {memory_id} of every method", found
        self._bare = {name: [f"arena:{name}"] for name in arenas}
        for name in methods:
            self._bare.setdefault(name, []).append(f"method:{name}")
        self._regions = {name: self._region(name, names) for name, names in regions.items()}

    def find(self, name: str, limits: Iterable[str]) -> tuple[str, list[MemoryPart]]:
        if name in self._regions:
            return self._regions[name]
        if name in self._known:
            return self._known[name]
        full = self._bare.get(name, [])
        if len(full) > 1:
            raise ArenaError(
                f"expected one memory but found an arena and a method named {quoted(name)}; "
                f"say {quoted(full[0])} or {quoted(full[1])}"
            )
        if full:
            return self._known[full[0]]
        others = [other for other in limits if not self._is_known(other)]
        hint = nearest(name, [*self._regions, *self._bare, *self._known])
        if self._regions or ":" in name or hint.startswith("did you mean"):
            raise ArenaError(f"expected a known memory but found {quoted(name)}; {hint}")
        if len(others) > 1:
            raise ArenaError(
                f"expected at most one name for the whole program but found "
                f"{' and '.join(map(quoted, others))}; say what lies in each with --region "
                f"{others[0]}=arena:NAME,method:NAME,id:N"
            )
        return "the whole program, since nothing in it has this name", list(self._parts)

    def _is_known(self, name: str) -> bool:
        return name in self._regions or name in self._known or name in self._bare

    def _region(self, region: str, names: Sequence[str]) -> tuple[str, list[MemoryPart]]:
        if region in self._known or region in self._bare:
            raise ArenaError(
                f"expected a new name for a region but found {quoted(region)}, which the program "
                f"has"
            )
        chosen: dict[tuple[str, str, int | None], MemoryPart] = {}
        for name in names:
            if name not in self._known:
                raise ArenaError(
                    f"region {quoted(region)}: expected a known memory but found {quoted(name)}; "
                    f"{nearest(name, self._known)}"
                )
            for part in self._known[name][1]:
                chosen[part.kind, part.name, part.memory_id] = part
        return f"region of {', '.join(map(quoted, names))}", list(chosen.values())


def _parts(layout: ProgramLayout, timeline: ProgramTimeline) -> Iterator[MemoryPart]:
    for a, arena in enumerate(layout.arenas):
        if arena.lifetime == "scratch":
            yield _scratch_part(a, arena, layout, timeline)
        else:
            slots = sorted(arena.slots, key=lambda slot: -slot.nbytes)[:LARGEST]
            largest = tuple(Occupant(name=slot.fqn, nbytes=slot.nbytes) for slot in slots)
            yield MemoryPart(kind="arena", name=arena.name, nbytes=arena.size, largest=largest)
    for method, times in zip(layout.methods, timeline.methods, strict=True):
        yield from _method_parts(method, times)


def _scratch_part(
    index: int, arena: ArenaLayout, layout: ProgramLayout, timeline: ProgramTimeline
) -> MemoryPart:
    part = MemoryPart(kind="arena", name=arena.name, nbytes=arena.size)
    users = [
        (binding, times)
        for method, times in zip(layout.methods, timeline.methods, strict=True)
        for binding in method.bindings
        if binding.arena == index
    ]
    if not users:
        return part
    binding, times = max(users, key=lambda user: user[0].used_bytes)
    return part.model_copy(update={"user": times.name, **_peak(times, binding.memory_id)})


def _method_parts(method: MethodLayout, times: MethodTimeline) -> Iterator[MemoryPart]:
    bound = {binding.memory_id for binding in method.bindings}
    for memory_id, buffer in enumerate(method.planned_buffers, start=1):
        if memory_id not in bound and buffer.size:
            part = MemoryPart(
                kind="method", name=method.name, memory_id=memory_id, nbytes=buffer.size
            )
            yield part.model_copy(update=_peak(times, memory_id))


def _peak(times: MethodTimeline, memory_id: int) -> dict[str, object]:
    peak = find_peak(times.tensors_of([memory_id]), times.length)
    if not peak.tensors:
        return {"peak": 0}
    return {
        "peak": peak.nbytes,
        "at": times.label(peak.instruction),
        "largest": tuple(
            Occupant(name=times.describe(tensor), nbytes=tensor.nbytes)
            for tensor in peak.tensors[:LARGEST]
        ),
    }
