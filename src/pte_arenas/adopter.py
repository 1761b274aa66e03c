"""Makes a stock file, whose methods are known to share a memory id, one that says so."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from flatbuffers.table import Table

from pte_arenas.claimed import ClaimedMemory, device_of, read_claimed
from pte_arenas.errors import ArenaError
from pte_arenas.files import replacing
from pte_arenas.frame import HEADER_AT, HEADER_SIZE, read_header
from pte_arenas.layout import (
    ArenaBinding,
    ArenaLayout,
    ArenaSlot,
    DeviceType,
    ProgramLayout,
    SlotAccess,
)
from pte_arenas.merge import SameValue, merge_slots, slots_of
from pte_arenas.plan import XNNPACK_PADDING
from pte_arenas.read import layout_of, mapped, read_layout
from pte_arenas.rules.tensors import quoted
from pte_arenas.splice import splice_program
from pte_arenas.wire.Program import Program

_FRONT = HEADER_AT + HEADER_SIZE

_DATA_BUFFER_IDX = 4 + 2 * 5
"""Where a vtable has field 5 of `Tensor`, its data_buffer_idx."""


def adopt(
    old: str | os.PathLike[str] | bytes,
    new: str | os.PathLike[str],
    memory_id: int = 2,
    *,
    name: str | None = None,
    require_arenas: bool = True,
) -> ProgramLayout:
    """Makes a memory id that methods share an arena of the file.

    A file that stock ExecuTorch exported with shared mutable buffers does not say that they are
    shared; here the caller does. The tensors in this memory become slots, with the initial values
    that the file has for them; slots without any start as zeros. Everything else stays byte for
    byte. docs/compatibility.md says what is refused.

    Args:
        old: Path of the file, or its bytes.
        new: Path to write to; an existing file is replaced only by a complete one.
        memory_id: The memory id that the methods share.
        name: Name of the arena; by default `memory_` and the memory id.
        require_arenas: Whether runtimes without arenas are to refuse the methods from now on, as
            for `to_executorch`.

    Returns:
        The layout of the new file.

    Raises:
        ArenaError: The methods cannot share this memory, or the file has arenas.
        InvalidProgramError: The old file breaks a rule of docs/checks.md.
        OSError: A file cannot be read or written.
    """
    data = old if isinstance(old, bytes) else Path(old)
    chunks = adopted(data, memory_id, name=name, require_arenas=require_arenas)
    with replacing(Path(new)) as sibling:
        with sibling.open("wb") as file:
            file.writelines(chunks)
        return read_layout(sibling)


def adopted(
    old: Path | bytes, memory_id: int, *, name: str | None = None, require_arenas: bool = True
) -> list[bytes | memoryview]:
    """The file that `adopt` writes, in pieces that make it when joined."""
    if not isinstance(memory_id, int) or memory_id < 2:
        raise ArenaError(
            f"memory_id: expected at least 2 but found {memory_id!r}; memory id 1 holds activations"
        )
    data = old if isinstance(old, bytes) else mapped(old)
    layout = layout_of(data)
    if layout.arenas:
        names = ", ".join(quoted(arena.name) for arena in layout.arenas)
        raise ArenaError(f"program_arenas: expected a program without arenas but found {names}")
    view = memoryview(data)
    program = Program.GetRootAs(view)
    claimed = read_claimed(program, layout, memory_id)
    _check_optional(claimed[0], memory_id, require_arenas=require_arenas)
    slots = merge_slots([memory.tensors for memory in claimed], _comparison(view, program))
    buffer = claimed[0].buffer
    padding = XNNPACK_PADDING if any(memory.has_xnnpack for memory in claimed) else 0
    arena = ArenaLayout(
        name=f"memory_{memory_id}" if name is None else name,
        size=buffer.size + padding,  # stock sharing leaves it out
        device_type=cast(DeviceType, buffer.device_type),  # read_claimed refuses others
        device_index=buffer.device_index,
        slots=slots,
    )
    head, rest = _parts(view)
    planned = None if require_arenas else arena.size
    head = _with_planned(head, claimed, memory_id, planned)
    bindings = {memory.method: [_binding(memory, memory_id, slots)] for memory in claimed}
    return splice_program([head, *rest], [arena], bindings)


def _check_optional(memory: ClaimedMemory, memory_id: int, *, require_arenas: bool) -> None:
    if require_arenas or (memory_id == 2 and memory.buffer.device_type == "cpu"):
        return
    raise ArenaError(
        "require_arenas=False: expected memory id 2 on the CPU, which runtimes without arenas can "
        f"share, but found {memory_id} on {device_of(memory.buffer)}; keep require_arenas=True"
    )


def _comparison(view: memoryview, program: Any) -> SameValue:
    """Compares initial values by their indices, which are known to be in range."""

    def same(one: int, other: int, nbytes: int) -> bool:
        if one == other:
            return True
        header = read_header(bytes(view[:_FRONT]))
        data = program.MutableDataSegments(0)
        base = program.Segments(data.SegmentIndex()).Offset()
        base += header.segment_base_offset if header else 0
        begins = [base + data.Offsets(index) for index in (one, other)]
        first, second = (view[begin : begin + nbytes] for begin in begins)
        return first == second

    return same


def _binding(memory: ClaimedMemory, memory_id: int, slots: Sequence[ArenaSlot]) -> ArenaBinding:
    """Which slots a method uses; whether it reads or writes them the file does not tell."""
    touched = slots_of(memory.used, slots)
    accesses = tuple(SlotAccess(slot=slot, mode="read_write") for slot in touched)
    return ArenaBinding(memory_id=memory_id, arena=0, accesses=accesses)


def _parts(view: memoryview) -> tuple[bytes, list[bytes | memoryview]]:
    """The program; the padding behind it and the segments, which are not copied."""
    header = read_header(bytes(view[:_FRONT]))
    if header is None:
        return bytes(view), []
    end = header.program_size
    base = max(header.segment_base_offset, end)
    return bytes(view[:end]), [bytes(view[end:base]), view[base:]]


def _with_planned(
    head: bytes, claimed: Sequence[ClaimedMemory], memory_id: int, size: int | None
) -> bytes:
    """The program with another size for the memory; None for none, also of initial values."""
    edited = bytearray(head)
    program = Program.GetRootAs(edited)
    for memory in claimed:
        program.ExecutionPlan(memory.plan).NonConstBufferSizesAsNumpy()[memory_id] = size or 0
        for position in memory.positions if size is None else ():
            offset = Table(edited, position).Offset(_DATA_BUFFER_IDX)
            if offset:
                struct.pack_into("<I", edited, position + offset, 0)
    return bytes(edited)
