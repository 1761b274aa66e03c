"""Files that runtimes without arenas load as well: `to_executorch(..., require_arenas=False)`.

Such runtimes share planned memory by its memory id, where they share at all: Python's
`executorch.runtime` shares every id, C++ `Module` ids 1 and 2 if its caller asks for that. So the
arena has id 2 in every method, and what a method must have for itself an id that no other method
has. docs/compatibility.md says what such runtimes make of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from executorch.exir.schema import Tensor
from executorch.exir.tensor import TensorSpec
from torch.utils import _pytree as pytree

from pte_arenas.bind import PlannedMethod
from pte_arenas.declare import Arena
from pte_arenas.errors import ArenaError
from pte_arenas.exporter import SharedArena, SharedBuffer
from pte_arenas.layout import ArenaLayout

ARENA_ID = 2
"""The memory id that both stock runtimes share beside activations, which have id 1."""

_WAY_OUT = "or keep require_arenas=True"


def check_arenas(arenas: Sequence[SharedArena]) -> None:
    """Refuses arenas that one shared memory id cannot stand for.

    Raises:
        ArenaError: There is not exactly one, or it is not a state arena on the CPU.
    """
    declared = [shared.arena for shared in arenas]
    if len(declared) == 1 and (declared[0].lifetime, declared[0].device) == ("state", "cpu"):
        return
    found = ", ".join(f"{a.name!r} ({a.lifetime}, {a.device})" for a in declared) or "none"
    raise ArenaError(
        f"require_arenas=False: expected exactly one state arena on the CPU but found {found}; "
        f"declare one arena for all shared state {_WAY_OUT}"
    )


def private_arenas(
    programs: Mapping[str, Any], arenas: Sequence[SharedArena], planning_pass: Any
) -> list[SharedArena]:
    """Returns an arena for each method's own mutable buffers, to be placed like the others.

    They stay out of the file's table: what they have of an arena is a memory id of their own.

    Args:
        programs: The methods as they will be planned.
        arenas: The arenas of the program.
        planning_pass: The user's, or a dict of them. One that leaves mutable buffers without memory
            still does.
    """
    private = []
    for method, program in programs.items():
        if not _plans_buffers(planning_pass, method):
            continue
        shared = {buffer.fqns.get(method) for arena in arenas for buffer in arena.buffers}
        own = dict.fromkeys(program.graph_signature.buffers_to_mutate.values())
        buffers = tuple(
            SharedBuffer(fqn, _values(program, fqn).contiguous(), {method: fqn})
            for fqn in own
            if fqn not in shared
        )
        if buffers:
            private.append(SharedArena(Arena(method, list(own)), buffers))
    return private


def _plans_buffers(planning_pass: Any, method: str) -> bool:
    if isinstance(planning_pass, dict):
        planning_pass = planning_pass.get(method)
    return bool(getattr(planning_pass, "alloc_mutable_buffers", True))


def _values(program: Any, fqn: str) -> Any:
    return program.state_dict.get(fqn, program.constants.get(fqn))


def renumber(
    programs: Mapping[str, Any], planned: Mapping[str, PlannedMethod]
) -> dict[str, PlannedMethod]:
    """Gives the program's arena its memory id, and each private arena one of its own.

    Args:
        programs: The planned methods; their tensors and buffer sizes are changed. Ids that the
            user's planner has given stay as they are.
        planned: What planning gave; arena 0 is the program's.

    Returns:
        The same with the new memory ids.

    Raises:
        ArenaError: The user's planner has used the arena's memory id.
    """
    sizes = {name: programs[name].graph_module.meta["non_const_buffer_sizes"] for name in planned}
    new_sizes = {name: _planner_sizes(name, sizes[name], planned[name]) for name in planned}
    free = 1 + max([ARENA_ID, *(memory_id for ids in new_sizes.values() for memory_id in ids)])
    result = {}
    for name, method in planned.items():
        new_ids = {}
        for binding in method.bindings:
            memory_id, free = (ARENA_ID, free) if binding.arena == 0 else (free, free + 1)
            new_ids[binding.memory_id] = memory_id
            new_sizes[name][memory_id] = sizes[name][binding.memory_id]
        moved = [spec for spec in _specs(programs[name]) if spec.mem_id in new_ids]
        for spec, memory_id in [(spec, new_ids[spec.mem_id]) for spec in moved]:
            spec.mem_id = memory_id
        # In place: the list stands in more than one module.
        sizes[name][:] = [new_sizes[name].get(i, 0) for i in range(max(new_sizes[name]) + 1)]
        bindings = tuple(
            binding.model_copy(update={"memory_id": new_ids[binding.memory_id]})
            for binding in method.bindings
        )
        result[name] = dataclasses.replace(method, bindings=bindings)
    return result


def _planner_sizes(name: str, sizes: Sequence[int], planned: PlannedMethod) -> dict[int, int]:
    """Sizes of the memory that the user's planner has given, by memory id."""
    bound = {binding.memory_id for binding in planned.bindings}
    own = {i: size for i, size in enumerate(sizes) if i not in bound}
    if own.get(ARENA_ID, 0):
        raise ArenaError(
            f"require_arenas=False: expected method {name!r} to leave memory id {ARENA_ID} to the "
            f"arena but found {own[ARENA_ID]} bytes planned there; let the memory planning pass "
            f"take ids from {ARENA_ID + 1} up {_WAY_OUT}"
        )
    return own


def _specs(program: Any) -> Iterator[TensorSpec]:
    """The specs of all tensors of a method."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            leaves = pytree.tree_leaves(node.meta.get("spec"))
            yield from (leaf for leaf in leaves if isinstance(leaf, TensorSpec))


def add_initial_values(
    program: Any, layouts: Sequence[ArenaLayout], planned: Mapping[str, PlannedMethod]
) -> None:
    """Gives the methods' tensors the initial values of their slots, for runtimes without arenas.

    Args:
        program: What stock emitted.
        layouts: Every arena, private ones included.
        planned: What `renumber` returned.
    """
    for plan in program.execution_plan:
        tensors = dict(_first_tensors(plan.values))
        for binding in planned[plan.name].bindings:
            slots = layouts[binding.arena].slots
            for access in binding.accesses:
                slot = slots[access.slot]
                if slot.data_buffer_idx:
                    tensor = tensors[binding.memory_id, slot.offset]
                    tensor.data_buffer_idx = slot.data_buffer_idx


def _first_tensors(values: Sequence[Any]) -> Iterator[tuple[tuple[int, int], Tensor]]:
    """The first tensor with bytes at each place: the buffer, which comes before its views."""
    for value in reversed(values):
        tensor = value.val
        if isinstance(tensor, Tensor) and tensor.allocation_info and 0 not in tensor.sizes:
            at = tensor.allocation_info
            yield (at.memory_id, at.memory_offset_high << 32 | at.memory_offset_low), tensor


def check_operators(program: Any) -> None:
    """Refuses a program that needs kernels of this project.

    Raises:
        ArenaError: A method calls such an operator.
    """
    for plan in program.execution_plan:
        for operator in plan.operators:
            if operator.name.startswith("pte_arenas::"):
                raise ArenaError(
                    f"require_arenas=False: expected operators of ExecuTorch in method "
                    f"{plan.name!r} but found {operator.name!r}; lower without it {_WAY_OUT}"
                )


def without_private(planned: Mapping[str, PlannedMethod]) -> dict[str, PlannedMethod]:
    """Returns the methods without the bindings of private arenas, which the file does not name."""
    return {
        name: dataclasses.replace(
            method, bindings=tuple(binding for binding in method.bindings if binding.arena == 0)
        )
        for name, method in planned.items()
    }
