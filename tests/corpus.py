"""Tiny programs for the checks, sound and broken, written with the generated FlatBuffers code."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

import flatbuffers
import pytest

from pte_arenas.wire.AllocationDetails import AllocationDetailsT
from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.ArenaSlot import ArenaSlotT
from pte_arenas.wire.DataSegment import DataSegmentT
from pte_arenas.wire.EValue import EValueT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Int import IntT
from pte_arenas.wire.KernelTypes import KernelTypes
from pte_arenas.wire.NonConstBufferDevice import NonConstBufferDeviceT
from pte_arenas.wire.Program import ProgramT
from pte_arenas.wire.ProgramArena import ProgramArenaT
from pte_arenas.wire.ProgramArenas import ProgramArenasT
from pte_arenas.wire.ScalarType import ScalarType
from pte_arenas.wire.SlotAccess import SlotAccessT
from pte_arenas.wire.SubsegmentOffsets import SubsegmentOffsetsT
from pte_arenas.wire.Tensor import TensorT

IDENTIFIER = b"ET12"
HEADER = struct.Struct("<4sIQQQ")

UINT64_MAX = 2**64 - 1

Changes = Mapping[str, Any]


def sound_program() -> ProgramT:
    """A program that keeps every rule: a state arena of two slots, a scratch arena, two methods.

    `step` requires arenas (the bound memory ids 2 and 3 have size 0), `peek` does not (memory id 1
    keeps the arena's 96 bytes).
    """
    cache = slot("cache", [4, 4], nbytes=64, data_buffer_idx=1)
    steps = slot("steps", [], ScalarType.LONG, offset=64, nbytes=8)
    return ProgramT(
        executionPlan=[
            ExecutionPlanT(
                name="step",
                values=[
                    EValueT(KernelTypes.Int, IntT(7)),
                    value([4], memory_id=1),
                    value([4, 4], memory_id=2),
                    value([], ScalarType.LONG, memory_id=2, offset=64),
                    value([5], memory_id=3, offset=8),
                    value([2, 2], memory_id=None, data_buffer_idx=1),
                ],
                nonConstBufferSizes=[0, 128, 0, 0],
                arenaBindings=[
                    ArenaBindingT(2, 0, [SlotAccessT(0, 2), SlotAccessT(1, 1)]),
                    ArenaBindingT(3, 1),
                ],
            ),
            ExecutionPlanT(
                name="peek",
                values=[value([2, 4], memory_id=1, offset=32, data_buffer_idx=1)],
                nonConstBufferSizes=[0, 96],
                arenaBindings=[ArenaBindingT(1, 0, [SlotAccessT(0, 0)])],
            ),
        ],
        segments=[DataSegmentT(0, 80)],
        mutableDataSegments=[SubsegmentOffsetsT(0, [0, 16])],
        programArenas=ProgramArenasT(
            format=1,
            arenas=[
                ProgramArenaT("state", 96, slots=[cache, steps]),
                ProgramArenaT("scratch", 32, lifetime=1),
            ],
        ),
    )


def slot(
    name: str | bytes | None,
    sizes: list[int],
    scalar_type: int = ScalarType.FLOAT,
    *,
    offset: int = 0,
    nbytes: int = 0,
    data_buffer_idx: int = 0,
) -> ArenaSlotT:
    """A slot whose dimensions are in order."""
    dim_order = list(range(len(sizes)))
    return ArenaSlotT(name, scalar_type, sizes, dim_order, offset, nbytes, data_buffer_idx)


def value(
    sizes: list[int],
    scalar_type: int = ScalarType.FLOAT,
    *,
    memory_id: int | None = 1,
    offset: int = 0,
    data_buffer_idx: int = 0,
) -> EValueT:
    """A planned tensor, or a constant where there is no memory id."""
    allocation = None
    if memory_id is not None:
        allocation = AllocationDetailsT(memory_id, offset & 0xFFFF_FFFF, offset >> 32)
    tensor = TensorT(
        scalarType=scalar_type,
        sizes=sizes,
        dimOrder=list(range(len(sizes))),
        dataBufferIdx=data_buffer_idx,
        allocationInfo=allocation,
    )
    return EValueT(KernelTypes.Tensor, tensor)


def device(buffer_idx: int, device_type: int, index: int = 0) -> NonConstBufferDeviceT:
    """The device of one planned buffer."""
    return NonConstBufferDeviceT(buffer_idx, device_type, index)


def changed(changes: Changes) -> ProgramT:
    """The sound program with some fields set, such as `{"arenas[0].slots[1].offset": 12}`.

    A path begins at the program; `arenas` is short for `programArenas.arenas`.
    """
    program = sound_program()
    for path, field in changes.items():
        full = re.sub(r"^arenas", "programArenas.arenas", path)
        *parents, (name, _) = steps = re.findall(r"(\w+)|\[(\d+)\]", full)
        owner: Any = program
        for word, index in parents:
            owner = getattr(owner, word) if word else owner[int(index)]
        if name:
            assert hasattr(owner, name), path
            setattr(owner, name, field)
        else:
            owner[int(steps[-1][1])] = field
    return program


def write(program: ProgramT, segments: bytes = bytes(80)) -> bytes:
    """The bytes of a file: the program behind an extended header, then its segments."""
    builder = flatbuffers.Builder(0)
    builder.Finish(program.Pack(builder), IDENTIFIER)
    body = bytes(builder.Output())
    size = len(body) + HEADER.size
    base = -(-size // 16) * 16
    header = HEADER.pack(b"eh00", HEADER.size, size, base, len(segments))
    (root,) = struct.unpack_from("<I", body)
    front = struct.pack("<I", root + HEADER.size) + IDENTIFIER
    return (front + header + body[8:]).ljust(base, b"\0") + segments


def file_with(changes: Changes, segments: bytes = bytes(80)) -> bytes:
    """The bytes of the sound program's file with some fields set."""
    return write(changed(changes), segments)


def refused(where: str, message: str, changes: Changes, *, id: str) -> Any:  # noqa: A002
    """A row of a table of refusals."""
    return pytest.param(changes, where, message, id=id)


def accepted(changes: Changes, *, id: str) -> Any:  # noqa: A002
    """A row of a table of programs that are just about sound."""
    return pytest.param(changes, id=id)
