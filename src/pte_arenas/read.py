"""Reads the memory layout out of a program file.

The values here are made without pydantic's checks, because the file may hold numbers that the
layout's types cannot: such a number stands in the field until `check_layout` has refused it. A
layout that passes is what its own constructor would have made.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from pte_arenas.dtypes import DTYPES_BY_CODE
from pte_arenas.errors import InvalidProgramError
from pte_arenas.layout import (
    AccessMode,
    ArenaBinding,
    ArenaLayout,
    ArenaSlot,
    BoundTensor,
    DeviceType,
    InitialData,
    Lifetime,
    MethodLayout,
    PlannedBuffer,
    ProgramLayout,
    SlotAccess,
)
from pte_arenas.planned import numbers, read_tensor, tensors_in
from pte_arenas.rules import check_layout
from pte_arenas.runtime import _C
from pte_arenas.wire.ArenaLifetime import ArenaLifetime
from pte_arenas.wire.DeviceType import DeviceType as WireDeviceType
from pte_arenas.wire.Program import Program
from pte_arenas.wire.SlotAccessMode import SlotAccessMode

_LIFETIMES: dict[int, Lifetime] = {
    ArenaLifetime.STATE: "state",
    ArenaLifetime.SCRATCH: "scratch",
}
_MODES: dict[int, AccessMode] = {
    SlotAccessMode.READ: "read",
    SlotAccessMode.WRITE: "write",
    SlotAccessMode.READ_WRITE: "read_write",
}
_DEVICES: dict[int, DeviceType] = {WireDeviceType.CPU: "cpu", WireDeviceType.CUDA: "cuda"}
_DTYPES: dict[int, str] = {code: dtype.name for code, dtype in DTYPES_BY_CODE.items()}


def read_layout(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
) -> ProgramLayout:
    """Reads and checks the memory layout of a program.

    Only the program's tables are read, not its weights. A program without arenas has a layout too:
    its methods with their planned buffers.

    Args:
        source: Path of a `.pte` file, or its bytes.

    Raises:
        InvalidProgramError: The program breaks a rule of docs/checks.md.
        OSError: The file cannot be read.
    """
    return layout_of(bytes_of(source))


def bytes_of(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
) -> bytes | mmap.mmap:
    """Gives the bytes of a program, from a file when they are needed."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)  # no copy of bytes
    return mapped(Path(source))


def layout_of(data: bytes | mmap.mmap) -> ProgramLayout:
    """Reads and checks the memory layout in the bytes of a program; see `read_layout`."""
    _C.verify(data)
    program = Program.GetRootAs(memoryview(data))
    layout = _read_program(program)
    check_layout(layout)
    return layout


def mapped(path: Path) -> bytes | mmap.mmap:
    """Gives the bytes of a file, read when they are needed."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # mmap refuses an empty file.
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _read_program(program: Any) -> ProgramLayout:
    plans = [program.ExecutionPlan(m) for m in range(program.ExecutionPlanLength())]
    table = program.ProgramArenas()
    if table is None:
        _check_no_bindings(plans)
        return ProgramLayout.model_construct(
            methods=tuple(_read_plan(plan) for plan in plans),
            initial_data=_read_initial_data(program),
        )
    features = range(table.RequiredFeaturesLength())
    return ProgramLayout.model_construct(
        format=table.Format(),
        required_features=tuple(_text(table.RequiredFeatures(i)) for i in features),
        arenas=tuple(_read_arena(table.Arenas(a)) for a in range(table.ArenasLength())),
        methods=tuple(_read_plan(plan) for plan in plans),
        initial_data=_read_initial_data(program),
    )


def _check_no_bindings(plans: list[Any]) -> None:
    for m, plan in enumerate(plans):
        if count := plan.ArenaBindingsLength():
            raise InvalidProgramError(
                f"execution_plan[{m}].arena_bindings",
                f"expected no bindings in a program without arenas but found {count}",
            )


def _read_initial_data(program: Any) -> InitialData | None:
    if program.MutableDataSegmentsLength() == 0:
        return None
    data = program.MutableDataSegments(0)
    if data.SegmentIndex() >= program.SegmentsLength():
        return None
    size = program.Segments(data.SegmentIndex()).Size()
    return InitialData.model_construct(size=size, offsets=numbers(data.OffsetsAsNumpy()))


def _read_arena(arena: Any) -> ArenaLayout:
    lifetime, device_type = arena.Lifetime(), arena.DeviceType()
    return ArenaLayout.model_construct(
        name=_text(arena.Name()),
        size=arena.Size(),
        alignment=arena.Alignment(),
        lifetime=_LIFETIMES.get(lifetime, lifetime),
        device_type=_DEVICES.get(device_type, device_type),
        device_index=arena.DeviceIndex(),
        slots=tuple(_read_slot(arena.Slots(s)) for s in range(arena.SlotsLength())),
    )


def _read_slot(slot: Any) -> ArenaSlot:
    scalar_type = slot.ScalarType()
    return ArenaSlot.model_construct(
        fqn=_text(slot.FullyQualifiedName()),
        dtype=_DTYPES.get(scalar_type, scalar_type),
        sizes=numbers(slot.SizesAsNumpy()),
        dim_order=numbers(slot.DimOrderAsNumpy()),
        offset=slot.Offset(),
        nbytes=slot.Nbytes(),
        data_buffer_idx=slot.DataBufferIdx(),
    )


def _read_plan(plan: Any) -> MethodLayout:
    bindings = [plan.ArenaBindings(b) for b in range(plan.ArenaBindingsLength())]
    tensors = _read_tensors(plan, {binding.MemoryId() for binding in bindings})
    return MethodLayout.model_construct(
        name=_text(plan.Name()),
        planned_buffers=_read_planned_buffers(plan),
        bindings=tuple(
            _read_binding(binding, tensors.pop(binding.MemoryId(), ())) for binding in bindings
        ),
        inputs=numbers(plan.InputsAsNumpy()),
        outputs=numbers(plan.OutputsAsNumpy()),
    )


def _read_planned_buffers(plan: Any) -> tuple[PlannedBuffer, ...]:
    devices: dict[int, Any] = {}
    for i in range(plan.NonConstBufferDeviceLength()):
        device = plan.NonConstBufferDevice(i)
        devices.setdefault(device.BufferIdx(), device)
    buffers = []
    for memory_id in range(1, plan.NonConstBufferSizesLength()):
        device = devices.get(memory_id)
        device_type = device.DeviceType() if device else WireDeviceType.CPU
        buffers.append(
            PlannedBuffer.model_construct(
                size=plan.NonConstBufferSizes(memory_id),
                device_type=_DEVICES.get(device_type, device_type),
                device_index=device.DeviceIndex() if device else 0,
            )
        )
    return tuple(buffers)


def _read_binding(binding: Any, tensors: tuple[BoundTensor, ...]) -> ArenaBinding:
    accesses = []
    for i in range(binding.AccessesLength()):
        access = binding.Accesses(i)
        mode = access.Mode()
        accesses.append(SlotAccess.model_construct(slot=access.Slot(), mode=_MODES.get(mode, mode)))
    return ArenaBinding.model_construct(
        memory_id=binding.MemoryId(),
        arena=binding.Arena(),
        accesses=tuple(accesses),
        tensors=tensors,
    )


def _read_tensors(plan: Any, bound: set[int]) -> dict[int, tuple[BoundTensor, ...]]:
    """The plan's tensors in bound memory, by memory id."""
    tensors: dict[int, list[BoundTensor]] = defaultdict(list)
    for planned in tensors_in(plan, bound):
        tensors[planned.memory_id].append(read_tensor(planned))
    return {memory_id: tuple(found) for memory_id, found in tensors.items()}


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode()
