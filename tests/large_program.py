"""A program as large as maps have to stand: 1,000 slots, and 10,000 instructions in one method."""

from __future__ import annotations

import functools

from corpus import slot, value, write

from pte_arenas.plan import Block, plan_arena
from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.ArenaSlot import ArenaSlotT
from pte_arenas.wire.Chain import ChainT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Instruction import InstructionT
from pte_arenas.wire.InstructionArguments import InstructionArguments
from pte_arenas.wire.KernelCall import KernelCallT
from pte_arenas.wire.Operator import OperatorT
from pte_arenas.wire.Program import ProgramT
from pte_arenas.wire.ProgramArena import ProgramArenaT
from pte_arenas.wire.ProgramArenas import ProgramArenasT
from pte_arenas.wire.SlotAccess import SlotAccessT

SLOTS = 1_000
INSTRUCTIONS = 10_000
OPERATORS = ("aten::add", "aten::mm", "aten::native_layer_norm")
PARTS = ("k_cache", "v_cache", "position", "scale")
LIVE = 8
"""How many activations of the long method are alive at once."""


@functools.cache
def large_program() -> bytes:
    """Caches of 250 layers beside single numbers, and three methods over them."""
    sizes = [1 << 14, 1 << 14, 1, 64]
    names = [f"model.layers.{s // 4}.attention.{PARTS[s % 4]}" for s in range(SLOTS)]
    blocks = [Block(name, 4 * sizes[s % 4], 4) for s, name in enumerate(names)]
    plan = plan_arena("kv_cache", blocks)
    slots = [
        slot(block.name, [block.nbytes // 4], offset=offset, nbytes=block.nbytes)
        for block, offset in zip(blocks, plan.offsets, strict=True)
    ]
    methods = [
        _method("prefill", INSTRUCTIONS, slots, mode=1),
        _method("decode", 500, slots, mode=2),
        _method("reset", 10, slots[::100], mode=1),
    ]
    arena = ProgramArenaT("kv_cache", plan.size, slots=slots)
    return write(ProgramT(executionPlan=methods, programArenas=ProgramArenasT(1, arenas=[arena])))


def _method(name: str, length: int, slots: list[ArenaSlotT], mode: int) -> ExecutionPlanT:
    """Each instruction makes an activation of the one before and of a slot, in turn."""
    activations = [value([1 << (4 + i % 7)], offset=(i % LIVE) << 13) for i in range(length + 1)]
    states = [value(each.sizes, memory_id=2, offset=each.offset) for each in slots]
    calls = []
    step = SLOTS // len(slots)
    for i in range(length):
        arguments = [i, max(0, i - LIVE + 2), length + 1 + i * len(slots) // length, i + 1]
        calls.append(
            InstructionT(
                InstructionArguments.KernelCall, KernelCallT(i % len(OPERATORS), arguments)
            )
        )
    accesses = [SlotAccessT(s * step, mode) for s in range(len(slots))]
    return ExecutionPlanT(
        name=name,
        values=[*activations, *states],
        inputs=[0],
        outputs=[length],
        chains=[ChainT(instructions=calls)],
        operators=[OperatorT(each, "out") for each in OPERATORS],
        nonConstBufferSizes=[0, LIVE << 13, 0],
        arenaBindings=[ArenaBindingT(2, 0, accesses)],
    )
