"""Writes this project's tables (schema/program_arenas.fbs) with a FlatBuffers builder."""

from __future__ import annotations

from collections.abc import Sequence

import flatbuffers
import numpy as np

from pte_arenas.dtypes import DTYPES
from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot, SlotAccess
from pte_arenas.wire import ArenaBinding as binding_table
from pte_arenas.wire import ArenaSlot as slot_table
from pte_arenas.wire import ProgramArena as arena_table
from pte_arenas.wire import ProgramArenas as arenas_table
from pte_arenas.wire import SlotAccess as access_table
from pte_arenas.wire.ArenaLifetime import ArenaLifetime
from pte_arenas.wire.DeviceType import DeviceType
from pte_arenas.wire.SlotAccessMode import SlotAccessMode

FORMAT = 1
"""Value of `ProgramArenas.format` that this version writes."""

LIFETIMES = {"state": ArenaLifetime.STATE, "scratch": ArenaLifetime.SCRATCH}
DEVICE_TYPES = {"cpu": DeviceType.CPU, "cuda": DeviceType.CUDA}
ACCESS_MODES = {
    "read": SlotAccessMode.READ,
    "write": SlotAccessMode.WRITE,
    "read_write": SlotAccessMode.READ_WRITE,
}


def write_arenas(
    builder: flatbuffers.Builder,
    arenas: Sequence[ArenaLayout],
    required_features: Sequence[str] = (),
) -> int:
    """Writes the root of the extension.

    Returns:
        The builder's offset of the `ProgramArenas` table.
    """
    features = [builder.CreateString(feature) for feature in required_features]
    feature_vector = write_references(builder, features) if features else 0
    vector = write_references(builder, [_write_arena(builder, arena) for arena in arenas])
    arenas_table.Start(builder)
    arenas_table.AddFormat(builder, FORMAT)
    arenas_table.AddRequiredFeatures(builder, feature_vector)
    arenas_table.AddArenas(builder, vector)
    return int(arenas_table.End(builder))


def _write_arena(builder: flatbuffers.Builder, arena: ArenaLayout) -> int:
    slots = [_write_slot(builder, slot) for slot in arena.slots]
    slot_vector = write_references(builder, slots) if slots else 0
    name = builder.CreateString(arena.name)
    arena_table.Start(builder)
    arena_table.AddSize(builder, arena.size)
    arena_table.AddName(builder, name)
    arena_table.AddSlots(builder, slot_vector)
    arena_table.AddAlignment(builder, arena.alignment)
    arena_table.AddLifetime(builder, LIFETIMES[arena.lifetime])
    arena_table.AddDeviceType(builder, DEVICE_TYPES[arena.device_type])
    arena_table.AddDeviceIndex(builder, arena.device_index)
    return int(arena_table.End(builder))


def _write_slot(builder: flatbuffers.Builder, slot: ArenaSlot) -> int:
    sizes = builder.CreateNumpyVector(np.array(slot.sizes, "<i4")) if slot.sizes else 0
    dim_order = builder.CreateByteVector(bytes(slot.dim_order)) if slot.dim_order else 0
    name = builder.CreateString(slot.fqn)
    slot_table.Start(builder)
    slot_table.AddOffset(builder, slot.offset)
    slot_table.AddNbytes(builder, slot.nbytes)
    slot_table.AddFullyQualifiedName(builder, name)
    slot_table.AddSizes(builder, sizes)
    slot_table.AddDimOrder(builder, dim_order)
    slot_table.AddDataBufferIdx(builder, slot.data_buffer_idx)
    slot_table.AddScalarType(builder, DTYPES[slot.dtype].code)
    return int(slot_table.End(builder))


class BindingWriter:
    """Writes bindings; equal accesses are written once, since many methods touch the same slots."""

    def __init__(self, builder: flatbuffers.Builder) -> None:
        """Writes with `builder`."""
        self._builder = builder
        self._accesses: dict[SlotAccess, int] = {}
        self._vectors: dict[tuple[SlotAccess, ...], int] = {}

    def write(self, bindings: Sequence[ArenaBinding]) -> int:
        """Writes the bindings of one method.

        Returns:
            The builder's offset of their vector.
        """
        return write_references(self._builder, [self._write_binding(each) for each in bindings])

    def _write_binding(self, binding: ArenaBinding) -> int:
        accesses = self._write_accesses(binding.accesses) if binding.accesses else 0
        binding_table.Start(self._builder)
        binding_table.AddMemoryId(self._builder, binding.memory_id)
        binding_table.AddArena(self._builder, binding.arena)
        binding_table.AddAccesses(self._builder, accesses)
        return int(binding_table.End(self._builder))

    def _write_accesses(self, accesses: tuple[SlotAccess, ...]) -> int:
        if accesses not in self._vectors:
            offsets = [self._write_access(access) for access in accesses]
            self._vectors[accesses] = write_references(self._builder, offsets)
        return self._vectors[accesses]

    def _write_access(self, access: SlotAccess) -> int:
        if access not in self._accesses:
            access_table.Start(self._builder)
            access_table.AddSlot(self._builder, access.slot)
            access_table.AddMode(self._builder, ACCESS_MODES[access.mode])
            self._accesses[access] = int(access_table.End(self._builder))
        return self._accesses[access]


def write_references(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    """Writes a vector of references at once.

    Args:
        builder: The builder.
        offsets: The builder's offsets of the tables or strings, in order.

    Returns:
        The builder's offset of the vector.
    """
    count = len(offsets)
    builder.Prep(4, 4 * count)
    # Element i lies 4 * (count - i) bytes before where the builder is now.
    positions = builder.Offset() + 4 * np.arange(count, 0, -1, dtype=np.int64)
    relative = positions - np.array(offsets, np.int64)
    return int(builder.CreateNumpyVector(relative.astype("<u4")))
