"""Gives shared buffers their places, around whatever memory planning pass the user has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule, Node

from pte_arenas._exir import fresh_planning_pass
from pte_arenas.layout import AccessMode, ArenaBinding, ArenaLayout, SlotAccess


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
    """

    bindings: tuple[ArenaBinding, ...] = ()
    private: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _Run:
    """One method between the planning of all methods and the end."""

    method: str
    module: GraphModule
    slots: dict[Place, tuple[Any, AccessMode]]
    private: dict[str, Any]


class ArenaPlanning:
    """The placements of one program while it is planned.

    Args:
        arenas: The layout of every arena.
        places: By method and name of a buffer in it, the place of the buffer.
        methods: The methods in the order in which they are planned.
        sized: Whether a bound memory id keeps the arena's size in the file, so that runtimes that
            know no arenas can load it.
    """

    def __init__(
        self,
        arenas: Sequence[ArenaLayout],
        places: Mapping[str, Mapping[str, Place]],
        methods: Sequence[str],
        *,
        sized: bool,
    ) -> None:
        self._arenas = arenas
        self._places = places
        self._methods = list(methods)
        self._sized = sized
        self._runs: list[_Run] = []

    def wrap(self, planning_pass: Any) -> Any:
        """Returns planning passes that also place shared buffers; the user's stay as they are."""
        if not isinstance(planning_pass, dict):
            return _ArenaPlanningPass(fresh_planning_pass(planning_pass), self)
        wrapped: dict[int, _ArenaPlanningPass] = {}
        for each in planning_pass.values():
            if id(each) not in wrapped:
                wrapped[id(each)] = _ArenaPlanningPass(fresh_planning_pass(each), self)
        return {method: wrapped[id(each)] for method, each in planning_pass.items()}

    def run(self, planning_pass: Any, module: GraphModule, signature: Any) -> Any:
        """Plans one method: shared buffers look constant to the user's pass."""
        method = self._methods[len(self._runs)]
        places = self._places.get(method, {})
        slots: dict[Place, tuple[Any, AccessMode]] = {}
        private: dict[str, Any] = {}
        for node in module.graph.nodes:
            fqn = _buffer_name(node, signature)
            if fqn is None:
                continue
            node.meta.pop("et_init_buffer", None)  # initial values are emitted by this package
            if fqn in places:
                slots[places[fqn]] = (node.meta["spec"], _access(node))
            elif fqn in signature.buffers_to_mutate.values():
                private[fqn] = node.meta["spec"]
        for spec, _ in slots.values():
            spec.const = True
        result = (
            planning_pass.run(module, signature)
            if hasattr(planning_pass, "run")
            else planning_pass(module)
        )
        for spec, _ in slots.values():
            spec.const = False
        self._runs.append(_Run(method, result.graph_module, slots, private))
        return result

    def finish(self) -> dict[str, PlannedMethod]:
        """Gives each arena a memory id in each method that uses it, behind the method's own."""
        return {run.method: self._bind(run) for run in self._runs}

    def _bind(self, run: _Run) -> PlannedMethod:
        # Extended in place: the program that is emitted has the same list in another module.
        sizes: list[int] = run.module.meta["non_const_buffer_sizes"]
        bindings = []
        for index in sorted({place.arena for place in run.slots}):
            memory_id = len(sizes)
            sizes.append(self._arenas[index].size if self._sized else 0)
            accesses = []
            for place, (spec, mode) in run.slots.items():
                if place.arena == index:
                    spec.mem_id, spec.mem_offset = memory_id, place.offset
                    accesses.append(SlotAccess(slot=place.slot, mode=mode))
            accesses.sort(key=lambda access: access.slot)
            bindings.append(
                ArenaBinding(memory_id=memory_id, arena=index, accesses=tuple(accesses))
            )
        private = {
            name: (spec.mem_id, spec.mem_offset)
            for name, spec in run.private.items()
            if spec.mem_id is not None and spec.mem_offset is not None
        }
        return PlannedMethod(tuple(bindings), private)


class _ArenaPlanningPass:
    """A user's planning pass in the place where exir expects one."""

    def __init__(self, planning_pass: Any, planning: ArenaPlanning) -> None:
        self.__dict__.update(_pass=planning_pass, _planning=planning)

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        return self._planning.run(self._pass, graph_module, graph_signature)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pass, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._pass, name, value)


def _buffer_name(node: Node, signature: ExportGraphSignature) -> str | None:
    if node.op != "placeholder" or "spec" not in node.meta:
        return None
    return signature.inputs_to_buffers.get(node.name)


def _access(node: Node) -> AccessMode:
    writes = [user for user in node.users if _writes_to(user, node)]
    if not writes:
        return "read"
    reads = [user for user in node.users if user not in writes]
    return "read_write" if reads else "write"


def _writes_to(user: Node, state: Node) -> bool:
    return user.target is torch.ops.aten.copy_.default and user.args[0] is state
