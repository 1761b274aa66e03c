"""The rules of the arena table."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pte_arenas.dtypes import DTYPES
from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import (
    UINT64_MAX,
    check_dim_order,
    check_nbytes,
    check_type,
    is_number,
    quoted,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pte_arenas.layout import ArenaLayout, ArenaSlot, BoundTensor, InitialData


def check_arenas(arenas: Sequence[ArenaLayout], initial_data: InitialData | None) -> None:
    """Checks the arenas in order, each with its slots."""
    arena_names: set[str] = set()
    slot_names: set[str] = set()
    for a, arena in enumerate(arenas):
        where = f"arenas[{a}]"
        _check_name(f"{where}.name", arena.name, arena_names)
        _check_arena(where, arena)
        for s, slot in enumerate(arena.slots):
            slot_where = f"{where}.slots[{s}]"
            _check_name(f"{slot_where}.fully_qualified_name", slot.fqn, slot_names)
            _check_slot(slot_where, slot, arena)
            _check_slot_alignment(f"{where}.alignment", slot, arena)
            check_initial_value(f"{slot_where}.data_buffer_idx", slot, initial_data)
        _check_slots_are_apart(where, arena)


def _check_name(where: str, name: str, earlier: set[str]) -> None:
    if not name:
        raise InvalidProgramError(where, "expected a name but found none")
    if name in earlier:
        raise InvalidProgramError(where, f"expected a unique name but found {quoted(name)} again")
    earlier.add(name)


def _check_arena(where: str, arena: ArenaLayout) -> None:
    if is_number(arena.lifetime):
        raise InvalidProgramError(
            f"{where}.lifetime", f"expected 0 (state) or 1 (scratch) but found {arena.lifetime}"
        )
    if is_number(arena.device_type):
        raise InvalidProgramError(
            f"{where}.device_type", f"expected 0 (cpu) or 1 (cuda) but found {arena.device_type}"
        )
    if arena.device_index < 0:
        raise InvalidProgramError(
            f"{where}.device_index", f"expected at least 0 but found {arena.device_index}"
        )
    if arena.alignment.bit_count() != 1:
        raise InvalidProgramError(
            f"{where}.alignment", f"expected a power of two but found {arena.alignment}"
        )
    # A pool that has to find an aligned block asks for `size + alignment` bytes.
    largest = UINT64_MAX - arena.alignment
    if arena.size > largest:
        raise InvalidProgramError(
            f"{where}.size", f"expected at most {largest} bytes but found {arena.size}"
        )
    if arena.lifetime == "scratch" and arena.slots:
        raise InvalidProgramError(
            f"{where}.slots", f"expected no slots in a scratch arena but found {len(arena.slots)}"
        )


def _check_slot(where: str, slot: ArenaSlot, arena: ArenaLayout) -> None:
    check_type(where, slot)
    check_dim_order(where, slot.dim_order, len(slot.sizes))
    check_nbytes(where, slot, overflow=f"{where}.nbytes")
    width = DTYPES[slot.dtype].width
    if slot.offset % width:
        raise InvalidProgramError(
            f"{where}.offset", f"expected a multiple of {width} but found {slot.offset}"
        )
    if slot.end > arena.size:
        inside = f"{span(slot.offset, slot.nbytes)} inside the arena of {arena.size} bytes"
        raise InvalidProgramError(where, f"expected bytes {inside}")


def _check_slot_alignment(where: str, slot: ArenaSlot, arena: ArenaLayout) -> None:
    width = DTYPES[slot.dtype].width
    if arena.alignment < width:
        raise InvalidProgramError(
            where,
            f"expected at least {width} for slot {quoted(slot.fqn)} but found {arena.alignment}",
        )


def check_initial_value(
    where: str, slot: ArenaSlot | BoundTensor, data: InitialData | None
) -> None:
    """The initial value, if there is one, lies inside the initial data."""
    index = slot.data_buffer_idx
    if index == 0:
        return
    if data is None:
        message = f"expected 0 in a program without initial data but found {index}"
    elif index >= len(data.offsets):
        message = f"expected an index below {len(data.offsets)} but found {index}"
    elif data.offsets[index] + slot.nbytes > data.size:
        value = span(data.offsets[index], slot.nbytes)
        message = f"expected bytes {value} inside the initial data of {data.size} bytes"
    else:
        return
    raise InvalidProgramError(where, message)


def _check_slots_are_apart(where: str, arena: ArenaLayout) -> None:
    """Slots come in the order of their offsets and share no byte; empty ones are no exception."""
    for s, (earlier, slot) in enumerate(pairwise(arena.slots), start=1):
        found = span(slot.offset, slot.nbytes)
        before = span(earlier.offset, earlier.nbytes)
        if slot.offset < earlier.offset:
            raise InvalidProgramError(
                f"{where}.slots[{s}]",
                "expected slots in the order of their offsets "
                f"but found {quoted(slot.fqn)} at {found} after {before}",
            )
        if slot.offset < earlier.end:
            raise InvalidProgramError(
                f"{where}.slots[{s}]",
                f"expected bytes apart from {quoted(earlier.fqn)} at {before} but found {found}",
            )
