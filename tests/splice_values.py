"""Arenas to splice, and small programs to splice them into."""

from __future__ import annotations

import struct
from typing import Any

import flatbuffers

from pte_arenas.frame import ExtendedHeader, read_header
from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot, SlotAccess
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Program import ProgramT

SLOTS = (
    ArenaSlot(fqn="k", dtype="float32", sizes=(2, 4), dim_order=(1, 0), offset=0, nbytes=32),
    ArenaSlot(fqn="ünïcode", dtype="bool", offset=40, nbytes=1, data_buffer_idx=7),
)
UNINITIALISED = SLOTS[1].model_copy(update={"data_buffer_idx": 0})
ARENAS = (
    ArenaLayout(name="state", size=1 << 40, alignment=4096, slots=SLOTS),
    ArenaLayout(
        name="scratch", size=0, lifetime="scratch", device_type="cuda", device_index=3, slots=()
    ),
)
BINDINGS = {
    "forward": (
        ArenaBinding(memory_id=1, arena=1),
        ArenaBinding(
            memory_id=2,
            arena=0,
            accesses=(SlotAccess(slot=1, mode="write"), SlotAccess(slot=0, mode="read_write")),
        ),
    ),
    "other": (ArenaBinding(memory_id=3, arena=0, accesses=(SlotAccess(slot=1, mode="write"),)),),
}


def header_of(data: bytes) -> ExtendedHeader:
    header = read_header(data)
    assert header
    return header


def packed(program: ProgramT) -> bytes:
    builder = flatbuffers.Builder()
    builder.Finish(program.Pack(builder), file_identifier=b"ET12")
    return bytes(builder.Output())


def plan(name: str, **fields: Any) -> ExecutionPlanT:
    return ExecutionPlanT(name=name, nonConstBufferSizes=[0, 0, 64], **fields)


def with_header(program: bytes, base: int, size: int, length: int = 32) -> bytes:
    (root,) = struct.unpack_from("<I", program)
    header = struct.pack("<4sIQQQ", b"eh00", length, 32 + len(program), base, size)
    return struct.pack("<I", root + 32) + b"ET12" + header + program[8:]
