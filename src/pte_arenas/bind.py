"""Gives arenas their memory ids in planned methods, and their final sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from executorch.exir.schema import DeviceType, NonConstBufferDevice
from torch.fx import GraphModule

from pte_arenas.declare import Arena
from pte_arenas.delegates import padding_behind
from pte_arenas.errors import ArenaError
from pte_arenas.layout import AccessMode, ArenaBinding, ArenaLayout, SlotAccess
from pte_arenas.scratch import Separated, separate


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: arena and slot by index, offset in bytes."""

    arena: int
    slot: int
    offset: int


@dataclass
class PlannedMethod:
    """What planning one method found out.

    Attributes:
        bindings: Its bindings, in the order of the arenas.
        private: Memory id and offset of each of its own mutable buffers by name.
        unshared: Bytes that it would plan without sharing: what the user's planner gave, and its
            own copy of each state arena that it binds.
    """

    bindings: tuple[ArenaBinding, ...] = ()
    private: dict[str, tuple[int, int]] = field(default_factory=dict)
    unshared: int = 0


@dataclass
class Run:
    """One method between the planning of all methods and the end.

    Attributes:
        method: Its name.
        module: Its graph.
        slots: By place, the specs of the tensors that live there, each with its first byte in the
            slot, and how the method uses the slot.
        private: By name, the specs of its own mutable buffers.
        scratch: By index of a scratch arena, what of the method's memory goes there.
        planned: Bytes that the user's planner gave.
    """

    method: str
    module: GraphModule
    slots: dict[Place, tuple[list[tuple[Any, int]], AccessMode]] = field(default_factory=dict)
    private: dict[str, Any] = field(default_factory=dict)
    scratch: dict[int, Separated] = field(default_factory=dict)
    planned: int = 0

    @property
    def sizes(self) -> list[int]:
        """Bytes by memory id; the emitted program has the same list in another module."""
        sizes: list[int] = self.module.meta["non_const_buffer_sizes"]
        return sizes

    def arenas(self) -> list[int]:
        """The indices of the arenas that it uses."""
        return sorted({place.arena for place in self.slots} | self.scratch.keys())


def divide(run: Run, layouts: Sequence[ArenaLayout]) -> None:
    """Separates a method's activations from its own memory where a scratch arena takes them."""
    run.planned = sum(run.sizes[1:])
    for index, layout in enumerate(layouts):
        if layout.lifetime != "scratch":
            continue
        memory_id = _first_id(run, layout)
        if memory_id is None:
            continue
        separated = separate(run.module, memory_id, run.sizes[memory_id])
        run.sizes[memory_id] = separated.own
        if separated.activations:
            run.scratch[index] = separated


def _first_id(run: Run, layout: ArenaLayout) -> int | None:
    """The memory id of activations on a device: the first there is; others are users' pools."""
    devices = {
        entry.buffer_idx: (entry.device_type.name.lower(), entry.device_index)
        for entry in run.module.meta.get("non_const_buffer_device") or ()
    }
    want = (layout.device_type, layout.device_index)
    ids = range(1, len(run.sizes))
    found = next((i for i in ids if devices.get(i, ("cpu", 0)) == want), None)
    return found if want != ("cpu", 0) or found == 1 else None


def fit(
    layouts: Sequence[ArenaLayout], arenas: Sequence[Arena], runs: Sequence[Run]
) -> list[ArenaLayout]:
    """Returns the layouts with their final sizes, after `divide`.

    Raises:
        ArenaError: An arena is too small or too little aligned for what it has to hold.
    """
    padding = dict.fromkeys(range(len(layouts)), 0)
    scratch: dict[int, dict[str, Separated]] = {index: {} for index in padding}
    for run in runs:
        behind = padding_behind(run.module)
        for index in run.arenas():
            padding[index] = max(padding[index], behind)
        for index, separated in run.scratch.items():
            scratch[index][run.method] = separated
    return [
        _fit(layout, arena, padding[index], scratch[index])
        for index, (layout, arena) in enumerate(zip(layouts, arenas, strict=True))
    ]


def _fit(
    layout: ArenaLayout, arena: Arena, padding: int, scratch: Mapping[str, Separated]
) -> ArenaLayout:
    if layout.lifetime == "scratch":
        return _fit_scratch(layout, arena, _scratch_bytes(layout, scratch))
    size = layout.size + padding if layout.size else 0
    if arena.capacity is not None and size > arena.capacity:
        raise ArenaError(
            f"arena {arena.name!r}: expected at most its capacity of {arena.capacity} bytes but "
            f"found {size}, the last {padding} of them for XNNPACK, which may read behind the last "
            f"buffer: raise the capacity or leave buffers out"
        )
    return layout.model_copy(update={"size": size})


def _scratch_bytes(layout: ArenaLayout, used: Mapping[str, Separated]) -> dict[str, int]:
    for method, separated in used.items():
        alignment = max(spec.alignment for spec in separated.activations)
        if alignment > layout.alignment:
            raise ArenaError(
                f"arena {layout.name!r}: expected an alignment of at least {alignment} for the "
                f"activations of method {method!r} but found {layout.alignment}"
            )
    return {method: separated.scratch for method, separated in used.items()}


def _fit_scratch(layout: ArenaLayout, arena: Arena, used: Mapping[str, int]) -> ArenaLayout:
    size = max(used.values(), default=0)
    if arena.capacity is not None and size > arena.capacity:
        largest = sorted(used.items(), key=lambda item: (-item[1], item[0]))[:3]
        methods = ", ".join(f"{method!r} with {count} bytes" for method, count in largest)
        raise ArenaError(
            f"arena {arena.name!r}: expected at most its capacity of {arena.capacity} bytes but "
            f"found {size}; the largest are {methods}: raise the capacity or change these methods"
        )
    return layout.model_copy(update={"size": size})


def bind(run: Run, layouts: Sequence[ArenaLayout], first: int, *, sized: bool) -> PlannedMethod:
    """Gives each arena that a method uses a memory id.

    Args:
        run: The planned method; its specs and buffer sizes are changed.
        layouts: The final layout of every arena.
        first: The first memory id for arenas, behind the method's own.
        sized: Whether the memory id keeps the arena's size in the file.
    """
    if run.arenas():
        run.sizes.extend([0] * (first - len(run.sizes)))
    bindings = tuple(_bind_arena(run, index, layouts[index], sized=sized) for index in run.arenas())
    state = sum(layouts[i].size for i in run.arenas() if layouts[i].lifetime == "state")
    private = {
        name: (spec.mem_id, spec.mem_offset)
        for name, spec in run.private.items()
        if spec.mem_id is not None and spec.mem_offset is not None
    }
    return PlannedMethod(bindings, private, run.planned + state)


def _bind_arena(run: Run, index: int, layout: ArenaLayout, *, sized: bool) -> ArenaBinding:
    memory_id = len(run.sizes)
    run.sizes.append(layout.size if sized else 0)
    if layout.device_type != "cpu":
        run.module.meta["non_const_buffer_device"].append(
            NonConstBufferDevice(
                buffer_idx=memory_id,
                device_type=DeviceType[layout.device_type.upper()],
                device_index=layout.device_index,
            )
        )
    if index in run.scratch:
        for spec in run.scratch[index].activations:
            spec.mem_id = memory_id
    accesses = []
    for place, (tensors, mode) in run.slots.items():
        if place.arena == index:
            for spec, begin in tensors:
                spec.mem_id, spec.mem_offset = memory_id, place.offset + begin
            accesses.append(SlotAccess(slot=place.slot, mode=mode))
    accesses.sort(key=lambda access: access.slot)
    return ArenaBinding(memory_id=memory_id, arena=index, accesses=tuple(accesses))
