"""The rules of a method's bindings and of the tensors that live in bound memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from pte_arenas.dtypes import DTYPES
from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import check_nbytes, check_type, is_number, quoted, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pte_arenas.layout import (
        ArenaBinding,
        ArenaLayout,
        BoundTensor,
        MethodLayout,
        PlannedBuffer,
    )


def check_plan(where: str, method: MethodLayout, arenas: Sequence[ArenaLayout]) -> None:
    """Checks the bindings of one method, then its bound tensors in the order of its values."""
    bound_ids: set[int] = set()
    for b, binding in enumerate(method.bindings):
        binding_where = f"{where}.arena_bindings[{b}]"
        _check_memory_id(binding_where, binding.memory_id, method, bound_ids)
        _check_arena_index(binding_where, binding.arena, len(arenas))
        buffer, arena = _bound(method, binding, arenas)
        _check_planned_buffer(where, binding.memory_id, buffer, arena)
        _check_accesses(binding_where, binding, arena)
    rooms = [_Room(*_bound(method, binding, arenas)) for binding in method.bindings]
    tensors = [
        (tensor.value, b, tensor)
        for b, binding in enumerate(method.bindings)
        for tensor in binding.tensors
    ]
    for value, b, tensor in sorted(tensors, key=lambda entry: entry[:2]):
        _check_tensor(f"{where}.values[{value}]", tensor, rooms[b])
    _check_ends(where, method, arenas)


def _bound(
    method: MethodLayout, binding: ArenaBinding, arenas: Sequence[ArenaLayout]
) -> tuple[PlannedBuffer, ArenaLayout]:
    return method.planned_buffers[binding.memory_id - 1], arenas[binding.arena]


def _check_memory_id(where: str, memory_id: int, method: MethodLayout, bound_ids: set[int]) -> None:
    entries = len(method.planned_buffers) + 1  # Entry 0 of non_const_buffer_sizes is reserved.
    if not 1 <= memory_id < entries:
        raise InvalidProgramError(
            f"{where}.memory_id", f"expected 1 to {entries} (exclusive) but found {memory_id}"
        )
    if memory_id in bound_ids:
        raise InvalidProgramError(
            f"{where}.memory_id", f"expected a memory id bound once but found {memory_id} again"
        )
    bound_ids.add(memory_id)


def _check_arena_index(where: str, index: int, count: int) -> None:
    if index >= count:
        raise InvalidProgramError(
            f"{where}.arena", f"expected an index below {count} but found {index}"
        )


def _check_planned_buffer(
    where: str, memory_id: int, buffer: PlannedBuffer, arena: ArenaLayout
) -> None:
    if buffer.size not in {0, arena.size}:
        raise InvalidProgramError(
            f"{where}.non_const_buffer_sizes[{memory_id}]",
            f"expected 0 or the arena's {arena.size} bytes but found {buffer.size}",
        )
    expected = f"{arena.device_type}:{arena.device_index}"
    found = f"{buffer.device_type}:{buffer.device_index}"
    if found != expected:
        raise InvalidProgramError(
            f"{where}.non_const_buffer_device",
            f"expected the device {expected} of arena {quoted(arena.name)} "
            f"for memory id {memory_id} but found {found}",
        )


def _check_accesses(where: str, binding: ArenaBinding, arena: ArenaLayout) -> None:
    seen: set[int] = set()
    for i, access in enumerate(binding.accesses):
        slot_where = f"{where}.accesses[{i}].slot"
        if access.slot >= len(arena.slots):
            raise InvalidProgramError(
                slot_where, f"expected an index below {len(arena.slots)} but found {access.slot}"
            )
        if access.slot in seen:
            raise InvalidProgramError(
                slot_where, f"expected a slot named once but found {access.slot} again"
            )
        seen.add(access.slot)
        if is_number(access.mode):
            raise InvalidProgramError(
                f"{where}.accesses[{i}].mode",
                f"expected 0 (read), 1 (write) or 2 (read_write) but found {access.mode}",
            )


class _Room:
    """Where the tensors of one binding may lie: inside one slot, or anywhere in a scratch arena."""

    def __init__(self, buffer: PlannedBuffer, arena: ArenaLayout) -> None:
        self.arena = arena
        self.takes_initial_values = buffer.size != 0
        self.words = f"inside one slot of arena {quoted(arena.name)}"
        spans = [(slot.offset, slot.end) for slot in arena.slots]
        if arena.lifetime == "scratch":
            self.words = f"inside arena {quoted(arena.name)} of {arena.size} bytes"
            spans = [(0, arena.size)]
        self._begins = [begin for begin, _ in spans]
        self._ends = [end for _, end in spans]

    def holds(self, begin: int, nbytes: int) -> bool:
        """Whether these bytes lie in one slot; no bytes may also lie where one begins or ends."""
        nearest = bisect_right(self._begins, begin) - 1
        return nearest >= 0 and begin + nbytes <= self._ends[nearest]


def _check_ends(where: str, method: MethodLayout, arenas: Sequence[ArenaLayout]) -> None:
    """Inputs and outputs are not scratch: another method may run before they are used."""
    scratch = {
        tensor.value: arenas[binding.arena]
        for binding in method.bindings
        if arenas[binding.arena].lifetime == "scratch"
        for tensor in binding.tensors
    }
    for field, values in (("inputs", method.inputs), ("outputs", method.outputs)):
        for i, value in enumerate(values):
            if value in scratch:
                raise InvalidProgramError(
                    f"{where}.{field}[{i}]",
                    f"expected a tensor outside scratch arena {quoted(scratch[value].name)} "
                    f"but found value {value} in it",
                )


def _check_tensor(where: str, tensor: BoundTensor, room: _Room) -> None:
    check_type(where, tensor)
    check_nbytes(where, tensor, overflow=where)
    width = DTYPES[tensor.dtype].width
    if tensor.offset % width:
        raise InvalidProgramError(
            where, f"expected an offset that is a multiple of {width} but found {tensor.offset}"
        )
    alignment = room.arena.alignment
    if width > alignment:
        raise InvalidProgramError(
            where,
            f"expected at most the alignment {alignment} of arena {quoted(room.arena.name)} "
            f"but found elements of {width} bytes",
        )
    if not room.holds(tensor.offset, tensor.nbytes):
        raise InvalidProgramError(
            where, f"expected bytes {span(tensor.offset, tensor.nbytes)} {room.words}"
        )
    if tensor.data_buffer_idx and not room.takes_initial_values:
        raise InvalidProgramError(
            f"{where}.data_buffer_idx",
            "expected no initial value in required arena memory "
            f"but found {tensor.data_buffer_idx}",
        )
