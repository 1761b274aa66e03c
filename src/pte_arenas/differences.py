"""Compares the memory layouts of two programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot, MethodLayout, ProgramLayout
from pte_arenas.read import read_layout
from pte_arenas.rules.tensors import quoted

_Source = str | os.PathLike[str] | bytes | bytearray | memoryview | ProgramLayout
_Field = str | int | None


class Difference(BaseModel):
    """One thing that is not the same in two layouts.

    Attributes:
        where: What differs, such as `slot 'k_cache'` or `method 'decode'`.
        field: What of it, such as `dtype`; empty where one of the two does not have it at all.
        before: The first program's; None where it has none.
        after: The second program's; None where it has none.
        breaks_saved_state: Whether the second program refuses a state that the first one saved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    where: str
    field: str = ""
    before: _Field
    after: _Field
    breaks_saved_state: bool = False


def diff(before: _Source, after: _Source) -> tuple[Difference, ...]:
    """Compares the memory layouts of two programs.

    Arenas, slots and methods are told apart by their names, and their order does not matter.
    Weights, instructions and the numbers in initial values are not compared; nor is where the
    tensors of a scratch arena lie in it.

    Args:
        before: Path of a `.pte` file, its bytes or its layout.
        after: The same, of the program to compare with it.

    Raises:
        InvalidProgramError: A program breaks a rule of docs/checks.md.
        OSError: A file cannot be read.
    """
    old, new = (
        source if isinstance(source, ProgramLayout) else read_layout(source)
        for source in (before, after)
    )
    return (
        *_fields("program", _of_program(old), _of_program(new)),
        *_arenas(old, new),
        *_slots(_Slot.by_name(old), _Slot.by_name(new)),
        *_methods(old, new),
    )


def _of_program(layout: ProgramLayout) -> dict[str, _Field]:
    return {
        "format": layout.format,
        "required features": ", ".join(sorted(map(quoted, layout.required_features))) or "none",
        "planned bytes": layout.planned_bytes,
        "runtimes without arenas": _elsewhere(layout),
    }


def _elsewhere(layout: ProgramLayout) -> str:
    """What runtimes that know no arenas do with the program."""
    sizes = {
        method.planned_buffers[binding.memory_id - 1].size
        for method in layout.methods
        for binding in method.bindings
        if layout.arenas[binding.arena].size
    }
    return "refuse methods that use arenas" if 0 in sizes else "load all methods"


def _arenas(old: ProgramLayout, new: ProgramLayout) -> Iterator[Difference]:
    pairs = _paired(
        {arena.name: arena for arena in old.arenas}, {arena.name: arena for arena in new.arenas}
    )
    for name, before, after in pairs:
        yield from _fields(
            f"arena {quoted(name)}",
            before and _of_arena(before),
            after and _of_arena(after),
            summary="size",
        )


def _of_arena(arena: ArenaLayout) -> dict[str, _Field]:
    return {
        "size": arena.size,
        "alignment": arena.alignment,
        "lifetime": arena.lifetime,
        "device": f"{arena.device_type}:{arena.device_index}",
    }


class _Slot(NamedTuple):
    arena: ArenaLayout
    slot: ArenaSlot

    @classmethod
    def by_name(cls, layout: ProgramLayout) -> dict[str, _Slot]:
        return {slot.fqn: cls(arena, slot) for arena in layout.arenas for slot in arena.slots}

    def saved(self) -> dict[str, _Field]:
        """What a saved state has to agree with."""
        slot = self.slot
        return {
            "dtype": slot.dtype,
            "sizes": str(list(slot.sizes)),
            "dim order": str(list(slot.dim_order)),
        }

    def placed(self) -> dict[str, _Field]:
        slot = self.slot
        return {
            "arena": quoted(self.arena.name),
            "bytes": f"[{slot.offset:,}, {slot.end:,})",
            "initial value": "values" if slot.data_buffer_idx else "zeros",
        }


def _slots(old: Mapping[str, _Slot], new: Mapping[str, _Slot]) -> Iterator[Difference]:
    for name, before, after in _paired(old, new):
        where = f"slot {quoted(name)}"
        if before is None or after is None:
            # Without slots no state was ever saved.
            kinds = [
                slot and f"{slot.slot.dtype} {list(slot.slot.sizes)}" for slot in (before, after)
            ]
            yield Difference(
                where=where, before=kinds[0], after=kinds[1], breaks_saved_state=bool(old)
            )
        else:
            yield from _fields(where, before.saved(), after.saved(), breaks_saved_state=True)
            yield from _fields(where, before.placed(), after.placed())


def _methods(old: ProgramLayout, new: ProgramLayout) -> Iterator[Difference]:
    pairs = _paired(
        {method.name: method for method in old.methods},
        {method.name: method for method in new.methods},
    )
    for name, before, after in pairs:
        yield from _fields(
            f"method {quoted(name)}",
            before and _of_method(before, old.arenas),
            after and _of_method(after, new.arenas),
            summary="planned bytes",
        )


def _of_method(method: MethodLayout, arenas: Sequence[ArenaLayout]) -> dict[str, _Field]:
    fields: dict[str, _Field] = {"planned bytes": method.planned_bytes}
    bound = {binding.memory_id for binding in method.bindings}
    for memory_id, buffer in enumerate(method.planned_buffers, start=1):
        where = f"memory id {memory_id}"
        if memory_id not in bound:
            fields[where] = buffer.size
        if (buffer.device_type, buffer.device_index) != ("cpu", 0):
            fields[f"{where} device"] = f"{buffer.device_type}:{buffer.device_index}"
    for binding in method.bindings:
        fields |= _of_binding(binding, arenas[binding.arena])
    return fields


def _of_binding(binding: ArenaBinding, arena: ArenaLayout) -> dict[str, _Field]:
    fields: dict[str, _Field] = {f"arena {quoted(arena.name)}": f"memory id {binding.memory_id}"}
    if arena.lifetime == "scratch":
        fields[f"bytes used of {quoted(arena.name)}"] = binding.used_bytes
    for access in binding.accesses:
        fields[f"slot {quoted(arena.slots[access.slot].fqn)}"] = access.mode
    return fields


def _paired(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What has one name in both, in the order of the old program and then of the new one."""
    for name in dict.fromkeys([*old, *new]):
        yield name, old.get(name), new.get(name)


def _fields(
    where: str,
    old: Mapping[str, _Field] | None,
    new: Mapping[str, _Field] | None,
    *,
    summary: str = "",
    breaks_saved_state: bool = False,
) -> Iterator[Difference]:
    """The fields that differ, or one line for something that only one program has."""
    if old is None or new is None:
        before, after = (None if fields is None else fields[summary] for fields in (old, new))
        yield Difference(where=where, before=before, after=after)
        return
    for field, before, after in _paired(old, new):
        if before != after:
            yield Difference(
                where=where,
                field=field,
                before=before,
                after=after,
                breaks_saved_state=breaks_saved_state,
            )
