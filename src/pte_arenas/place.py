"""Gives shared buffers their places, around whatever memory planning pass the user has.

To the user's pass the buffers of arenas look constant, so it plans as if they were not there; what
it keeps of earlier programs is kept from it. When all methods are planned, each arena that a method
uses gets a memory id behind the method's own (`bind.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from pte_arenas._exir import fresh_planning_pass
from pte_arenas.bind import Place, PlannedMethod, Run, bind, divide, fit
from pte_arenas.devices import check_new_value, check_users, copies_to_devices, use_on_device
from pte_arenas.errors import ArenaError
from pte_arenas.exporter import SharedArena
from pte_arenas.inplace import place_new_values
from pte_arenas.layout import AccessMode, ArenaLayout
from pte_arenas.parts import place_parts

_WRITE = torch.ops.aten.copy_.default


class ArenaPlanning:
    """The placements of one program while it is planned.

    Args:
        arenas: Every arena.
        layouts: The layout of every arena.
        places: By method and name of a buffer in it, the place of the buffer.
        methods: The methods in the order in which they are planned.
        sized: Whether a bound memory id keeps the arena's size in the file, so that runtimes that
            know no arenas can load it.
        in_place: Whether new state may be computed where the state is.

    Attributes:
        layouts: The layouts; after `finish` with the sizes of scratch arenas, and with the padding
            that delegates need behind the last slot.
        warnings: What the user should know.
    """

    def __init__(
        self,
        arenas: Sequence[SharedArena],
        layouts: Sequence[ArenaLayout],
        places: Mapping[str, Mapping[str, Place]],
        methods: Sequence[str],
        *,
        sized: bool,
        in_place: bool,
    ) -> None:
        self.layouts = list(layouts)
        self._arenas = [shared.arena for shared in arenas]
        self._in_place = in_place
        self._places = places
        self._methods = list(methods)
        self._sized = sized
        self.warnings: list[str] = []
        self._plans_devices = True
        self._runs: list[Run] = []

    def wrap(self, config: ExecutorchBackendConfig) -> ExecutorchBackendConfig:
        """Returns a configuration whose planning passes also place shared buffers.

        The user's configuration and passes stay as they are.

        Raises:
            ArenaError: An arena is on a device, and memory on devices is not planned.
        """
        self._plans_devices = config.enable_non_cpu_memory_planning
        for layout in self.layouts:
            if layout.device_type != "cpu" and not self._plans_devices:
                raise ArenaError(
                    f"arena {layout.name!r}: expected enable_non_cpu_memory_planning=True for an "
                    f"arena on {layout.device_type} but found False, which keeps all memory on the "
                    f"CPU"
                )
        passes = config.memory_planning_pass
        wrapped: dict[int, _ArenaPlanningPass] = {}

        def wrap(planning_pass: Any) -> _ArenaPlanningPass:
            key = id(planning_pass)
            if key not in wrapped:
                wrapped[key] = _ArenaPlanningPass(fresh_planning_pass(planning_pass), self)
            return wrapped[key]

        if isinstance(passes, dict):
            # Stock plans a method that is not in the dict with a pass that knows no arenas.
            rest = dict.fromkeys(self._methods, ExecutorchBackendConfig().memory_planning_pass)
            planning: Any = {method: wrap(each) for method, each in {**rest, **passes}.items()}
        else:
            planning = wrap(passes)
        return dataclasses.replace(config, memory_planning_pass=planning)

    def run(self, planning_pass: Any, module: GraphModule, signature: Any) -> Any:
        """Plans one method: shared buffers look constant to the user's pass."""
        method = self._methods[len(self._runs)]
        run = Run(method, module)
        states = self._states(run, signature)
        modes = {node: _access(node) for node in states}
        names = signature.inputs_to_buffers
        self._use_devices(method, states, names)
        placed = place_new_values(module, states) if self._in_place else {}
        parts = self._place_parts(module, states, placed)
        self._check_devices(method, states, names)
        _forget_unused_results(module)
        for node, place in states.items():
            whole = [(each, 0) for each in (node, *placed.get(node, ()))]
            tensors = [(each.meta["spec"], at) for each, at in [*whole, *parts.get(node, ())]]
            run.slots[place] = (tensors, modes[node])
        hidden = [spec for tensors, _ in run.slots.values() for spec, _ in tensors]
        for spec in hidden:
            spec.const = True
        result = (
            planning_pass.run(module, signature)
            if hasattr(planning_pass, "run")
            else planning_pass(module)
        )
        for spec in hidden:
            spec.const = False
            spec.mem_id = spec.mem_offset = None  # a pass may give ids to constants as well
        run.module = result.graph_module
        if any(self.layouts[place.arena].device_type != "cpu" for place in states.values()):
            run.module.meta.setdefault("non_const_buffer_device", [])
        self._runs.append(run)
        return result

    def _states(self, run: Run, signature: ExportGraphSignature) -> dict[Node, Place]:
        """The placeholders of shared buffers; notes a method's own mutable buffers in the run."""
        places = self._places.get(run.method, {})
        states: dict[Node, Place] = {}
        names = signature.inputs_to_buffers
        mutated = set(signature.buffers_to_mutate.values())
        for node in run.module.graph.nodes:
            fqn = names.get(node.name)
            if node.op != "placeholder" or "spec" not in node.meta or fqn is None:
                continue
            node.meta.pop("et_init_buffer", None)  # initial values are emitted by this package
            if fqn in places:
                node.meta.pop("constant_tag", None)  # not a constant, whatever this method does
                states[node] = places[fqn]
            elif fqn in mutated:
                run.private[fqn] = node.meta["spec"]
        return states

    def _place_parts(
        self, module: GraphModule, states: Mapping[Node, Place], placed: Mapping[Node, list[Node]]
    ) -> dict[Node, list[tuple[Node, int]]]:
        if self._sized or not self._in_place:  # `_sized`: other runtimes have no kernels of ours
            return {}
        occupants = {
            node: placed.get(node, [])
            for node, place in states.items()
            if self.layouts[place.arena].device_type == "cpu"
        }
        return place_parts(module, occupants)

    def _use_devices(
        self, method: str, states: Mapping[Node, Place], names: Mapping[str, str]
    ) -> None:
        for node, place in states.items():
            arena = self.layouts[place.arena]
            if arena.device_type != "cpu":
                use_on_device(node, arena)
                check_new_value(method, names[node.name], node, arena)

    def _check_devices(
        self, method: str, states: Mapping[Node, Place], names: Mapping[str, str]
    ) -> None:
        for node, place in states.items():
            arena, fqn = self.layouts[place.arena], names[node.name]
            if arena.device_type == "cpu":
                if self._plans_devices:
                    self.warnings += copies_to_devices(method, fqn, node, arena)
            else:
                check_users(method, fqn, node, arena)

    def finish(self) -> dict[str, PlannedMethod]:
        """Gives each arena a memory id in each method that uses it, behind those of all methods.

        No method then has memory of its own at such an id: where methods share memory by id, as in
        stock `executorch.runtime`, it would be there in place of the arena.

        Raises:
            ArenaError: The arenas take more than their capacity.
        """
        for run in self._runs:
            divide(run, self.layouts)
        self.layouts = fit(self.layouts, self._arenas, self._runs)
        # Where ids keep their sizes, `optional.renumber` sees to it.
        first = 0 if self._sized else max((len(run.sizes) for run in self._runs), default=0)
        return {run.method: bind(run, self.layouts, first, sized=self._sized) for run in self._runs}


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


def _forget_unused_results(module: GraphModule) -> None:
    """Keeps a planner from giving memory to what a write of state returns, which is the state."""
    for node in module.graph.nodes:
        if node.target is _WRITE and node.args[0].op == "placeholder":
            node.meta["spec"] = node.args[0].meta["spec"]
    *nodes, output = module.graph.nodes
    used = {id(spec) for node in nodes for spec in pytree.tree_leaves(node.meta.get("spec"))}
    for spec in pytree.tree_leaves(output.meta["spec"]):
        if id(spec) not in used and isinstance(spec, TensorSpec):
            spec.const = True


def _access(node: Node) -> AccessMode:
    writes = [user for user in node.users if _writes_to(user, node)]
    if not writes:
        return "read"
    reads = [user for user in node.users if user not in writes]
    return "read_write" if reads else "write"


def _writes_to(user: Node, state: Node) -> bool:
    return user.target is _WRITE and user.args[0] is state
