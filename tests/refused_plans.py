"""The rules of docs/checks.md on plans, each with a change that breaks it.

Rows are as in refused_arenas.py.
"""

from __future__ import annotations

from corpus import UINT64_MAX, device, refused, value

from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.ProgramArenas import ProgramArenasT
from pte_arenas.wire.SlotAccess import SlotAccessT

LARGE = 2**31 - 1

STEP, PEEK = "executionPlan[0]", "executionPlan[1]"
B0, B1 = f"{STEP}.arenaBindings[0]", f"{STEP}.arenaBindings[1]"
P0, P1 = "execution_plan[0].arena_bindings[0]", "execution_plan[0].arena_bindings[1]"

BINDINGS = [
    refused(
        f"{P0}.memory_id",
        "expected 1 to 4 (exclusive) but found 0",
        {f"{B0}.memoryId": 0, f"{B0}.arena": 9},
        id="memory-id-0",
    ),
    refused(
        f"{P1}.memory_id",
        "expected 1 to 4 (exclusive) but found 4",
        {f"{B1}.memoryId": 4},
        id="memory-id-beyond",
    ),
    refused(
        f"{P0}.memory_id",
        "expected 1 to 1 (exclusive) but found 2",
        {f"{STEP}.nonConstBufferSizes": None},
        id="no-memory-ids",
    ),
    refused(
        f"{P1}.memory_id",
        "expected a memory id bound once but found 2 again",
        {f"{B1}.memoryId": 2, f"{B1}.arena": 9},
        id="bound-twice",
    ),
    refused(
        f"{P1}.arena",
        "expected an index below 2 but found 2",
        {f"{B1}.arena": 2},
        id="arena",
    ),
    refused(
        f"{P0}.arena",
        "expected an index below 0 but found 0",
        {"programArenas": ProgramArenasT(format=1)},
        id="arena-of-none",
    ),
    refused(
        "execution_plan[1].non_const_buffer_sizes[1]",
        "expected 0 or the arena's 96 bytes but found 95",
        {f"{PEEK}.nonConstBufferSizes": [0, 95]},
        id="size",
    ),
    refused(
        "execution_plan[1].non_const_buffer_sizes[1]",
        "expected 0 or the arena's 96 bytes but found -96",
        {f"{PEEK}.nonConstBufferSizes": [0, -96]},
        id="size-negative",
    ),
    refused(
        "execution_plan[0].non_const_buffer_device",
        "expected the device cpu:0 of arena 'state' for memory id 2 but found cuda:1",
        {f"{STEP}.nonConstBufferDevice": [device(1, 1), device(2, 1, 1), device(2, 0)]},
        id="device",
    ),
    refused(
        "execution_plan[0].non_const_buffer_device",
        "expected the device cuda:0 of arena 'state' for memory id 2 but found cpu:0",
        {"arenas[0].deviceType": 1},
        id="device-absent",
    ),
    refused(
        "execution_plan[0].non_const_buffer_device",
        "expected the device cpu:0 of arena 'scratch' for memory id 3 but found -5:-1",
        {f"{STEP}.nonConstBufferDevice": [device(3, -5, -1)]},
        id="device-unknown",
    ),
    refused(
        f"{P0}.accesses[1].slot",
        "expected an index below 2 but found 2",
        {f"{B0}.accesses[1].slot": 2, f"{B0}.accesses[1].mode": 3},
        id="access",
    ),
    refused(
        f"{P1}.accesses[0].slot",
        "expected an index below 0 but found 0",
        {f"{B1}.accesses": [SlotAccessT(0, 0)]},
        id="access-in-scratch",
    ),
    refused(
        f"{P0}.accesses[1].slot",
        "expected a slot named once but found 0 again",
        {f"{B0}.accesses[1].slot": 0, f"{B0}.accesses[1].mode": 3},
        id="access-twice",
    ),
    refused(
        f"{P0}.accesses[1].mode",
        "expected 0 (read), 1 (write) or 2 (read_write) but found 3",
        {f"{B0}.accesses[1].mode": 3},
        id="mode",
    ),
    refused(
        "execution_plan[1].arena_bindings[1].memory_id",
        "expected 1 to 2 (exclusive) but found 2",
        {
            f"{PEEK}.arenaBindings": [ArenaBindingT(1, 0), ArenaBindingT(2, 1)],
            f"{PEEK}.values[0].val.scalarType": 8,
        },
        id="bindings-before-values",
    ),
]

V = "execution_plan[0].values"

TENSORS = [
    refused(
        f"{V}[2].scalar_type",
        "expected a known scalar type but found 8",
        {f"{STEP}.values[2].val.scalarType": 8, f"{STEP}.values[2].val.sizes": [-1]},
        id="scalar-type",
    ),
    refused(
        f"{V}[2].sizes",
        "expected at most 16 dimensions but found 17",
        {f"{STEP}.values[2].val.sizes": [-1] * 17},
        id="17-dimensions",
    ),
    refused(
        f"{V}[3].sizes[0]",
        "expected at least 0 but found -1",
        {f"{STEP}.values[3].val.sizes": [-1], f"{STEP}.values[4].val.sizes": [-2]},
        id="size-negative",
    ),
    refused(
        f"{V}[2]",
        f"expected a size that fits 64 bits but found sizes [{LARGE}, {LARGE}, 2]",
        {f"{STEP}.values[2].val.sizes": [LARGE, LARGE, 2]},
        id="overflow",
    ),
    refused(
        f"{V}[2]",
        "expected an offset that is a multiple of 4 but found 2",
        {f"{STEP}.values[2].val.allocationInfo.memoryOffsetLow": 2},
        id="offset",
    ),
    refused(
        f"{V}[4]",
        "expected at most the alignment 2 of arena 'scratch' but found elements of 4 bytes",
        {"arenas[1].alignment": 2, f"{STEP}.values[4].val.sizes": [99]},
        id="alignment",
    ),
    refused(
        f"{V}[2]",
        "expected bytes [4, 68) inside one slot of arena 'state'",
        {f"{STEP}.values[2].val.allocationInfo.memoryOffsetLow": 4},
        id="across-slots",
    ),
    refused(
        f"{V}[2]",
        "expected bytes [72, 76) inside one slot of arena 'state'",
        {f"{STEP}.values[2]": value([1], memory_id=2, offset=72)},
        id="behind-slots",
    ),
    refused(
        f"{V}[2]",
        "expected bytes [76, 76) inside one slot of arena 'state'",
        {f"{STEP}.values[2]": value([0], memory_id=2, offset=76)},
        id="empty-behind-slots",
    ),
    refused(
        f"{V}[2]",
        "expected bytes [4294967296, 4294967360) inside one slot of arena 'state'",
        {f"{STEP}.values[2].val.allocationInfo.memoryOffsetHigh": 1},
        id="offset-high",
    ),
    refused(
        f"{V}[2]",
        f"expected bytes [{UINT64_MAX - 3}, 2^64 or more) inside one slot of arena 'state'",
        {f"{STEP}.values[2]": value([4], memory_id=2, offset=UINT64_MAX - 3)},
        id="offset-overflow",
    ),
    refused(
        f"{V}[4]",
        "expected bytes [16, 36) inside arena 'scratch' of 32 bytes",
        {f"{STEP}.values[4].val.allocationInfo.memoryOffsetLow": 16},
        id="outside-scratch",
    ),
    refused(
        f"{V}[4]",
        "expected bytes [36, 36) inside arena 'scratch' of 32 bytes",
        {f"{STEP}.values[4]": value([0], memory_id=3, offset=36)},
        id="empty-outside-scratch",
    ),
    refused(
        f"{V}[2].data_buffer_idx",
        "expected no initial value in required arena memory but found 1",
        {f"{STEP}.values[2].val.dataBufferIdx": 1},
        id="initial-value",
    ),
]

ENDS = [
    refused(
        "execution_plan[0].inputs[1]",
        "expected a tensor outside scratch arena 'scratch' but found value 4 in it",
        {f"{STEP}.inputs": [1, 4], f"{STEP}.outputs": [4]},
        id="input-in-scratch",
    ),
    refused(
        "execution_plan[0].outputs[3]",
        "expected a tensor outside scratch arena 'scratch' but found value 4 in it",
        {f"{STEP}.inputs": [0, -1, 99], f"{STEP}.outputs": [0, 2, 5, 4]},
        id="output-in-scratch",
    ),
]
