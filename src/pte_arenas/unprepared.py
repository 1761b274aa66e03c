"""Arenas for programs that were exported without this package: state is what has one name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pte_arenas.declare import Arena, assign_buffers
from pte_arenas.dtypes import name_of
from pte_arenas.errors import ArenaError
from pte_arenas.exporter import Exported, SharedArena, SharedBuffer
from pte_arenas.lower import shared_buffers


def check_untouched(programs: Mapping[str, ExportedProgram]) -> None:
    """Checks that stock emission has not worked on the programs; it leaves them half changed.

    Raises:
        ArenaError: It has.
    """
    for method, program in programs.items():
        if any(node.target is torch.ops.aten.copy_.default for node in program.graph.nodes):
            raise ArenaError(
                f"{method}: expected a lowered program but found one that edge.to_executorch() has "
                f"worked on, which changes it; lower the exported programs again"
            )


def share_by_name(
    arenas: Sequence[Arena | SharedArena], programs: Mapping[str, ExportedProgram]
) -> list[SharedArena]:
    """Finds the buffers of declared arenas in lowered programs: one name is one slot.

    Arenas that `export` has already resolved are returned as they are.

    Raises:
        ArenaError: A buffer differs between methods, is not contiguous, or a pattern matches
            nothing.
    """
    if isinstance(arenas, Exported):
        raise ArenaError("expected a list of arenas but found an Exported; pass its .arenas")
    if not isinstance(arenas, Iterable):
        raise ArenaError(f"expected a list of arenas but found {arenas!r}")
    for arena in arenas:
        if not isinstance(arena, (Arena, SharedArena)):
            raise ArenaError(f"expected arenas but found {arena!r}")
    declared = [arena for arena in arenas if isinstance(arena, Arena)]
    if not declared:
        return [arena for arena in arenas if isinstance(arena, SharedArena)]
    if len(declared) != len(arenas):
        raise ArenaError(
            "expected arenas that are all declared or all from export but found both kinds; pass "
            "Exported.arenas as it is"
        )
    buffers: dict[str, dict[str, torch.Tensor]] = {}
    for method, program in programs.items():
        for name, tensor in _buffers(program):
            buffers.setdefault(name, {})[method] = tensor
    swallowed = {name for program in programs.values() for name, _ in _swallowed(program)}
    mutated = {
        name
        for program in programs.values()
        for name in program.graph_signature.buffers_to_mutate.values()
    }
    shared = [name for name in buffers if name in mutated and len(buffers[name]) > 1]
    names = {name: name for name in [*buffers, *sorted(swallowed - buffers.keys())]}
    layout = assign_buffers(declared, names, shared)
    return [
        SharedArena(
            arena,
            tuple(_shared(name, buffers.get(name, {})) for name in layout[arena.name]),
        )
        for arena in declared
    ]


def check_not_swallowed(
    arenas: Sequence[SharedArena], programs: Mapping[str, ExportedProgram]
) -> None:
    """Refuses state that a delegate has taken for a constant.

    Raises:
        ArenaError: It names the buffer, the method, the delegate and the way out.
    """
    for method, program in programs.items():
        inside = dict(_swallowed(program))
        for arena in arenas:
            for buffer in arena.buffers:
                backend = inside.get(buffer.fqns.get(method, buffer.name))
                if backend is not None:
                    raise ArenaError(
                        f"{method}: expected buffer {buffer.name!r} of arena {arena.arena.name!r} "
                        f"to be live but found that the delegate {backend} holds its initial "
                        f"values as constants; export the methods with pte_arenas.export, which "
                        f"keeps state out of delegates"
                    )


def check_complete(arenas: Sequence[SharedArena], programs: Mapping[str, ExportedProgram]) -> None:
    """Refuses programs whose shared state no given arena holds.

    Raises:
        ArenaError: The arenas are missing or come from another export.
    """
    held = {
        (method, fqn)
        for arena in arenas
        for buffer in arena.buffers
        for method, fqn in buffer.fqns.items()
    }
    for method, program in programs.items():
        for fqn in shared_buffers(program):
            if (method, fqn) not in held:
                raise ArenaError(
                    f"{method}: expected an arena that holds buffer {fqn!r}, as at its export, but "
                    f"found none; pass the arenas of that export: to_executorch(edge, "
                    f"exported.arenas)"
                )


def _buffers(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.target is not None:
            values = program.state_dict.get(spec.target, program.constants.get(spec.target))
            if isinstance(values, torch.Tensor):
                yield spec.target, values


def _swallowed(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """Yields the buffers that delegates own, with the name of the backend."""
    for module in program.graph_module.modules():
        if isinstance(module, LoweredBackendModule):
            for name in module.original_module.graph_signature.inputs_to_buffers.values():
                yield name, module.backend_id


def _shared(name: str, tensors: Mapping[str, torch.Tensor]) -> SharedBuffer:
    """One slot of the tensors that methods have under one name; none is a swallowed buffer's."""
    if not tensors:
        return SharedBuffer(name, torch.zeros(0), {})
    (first_method, first), *others = tensors.items()
    for method, tensor in others:
        if (tensor.dtype, tensor.shape) != (first.dtype, first.shape):
            raise ArenaError(
                f"buffer {name!r}: expected one dtype and shape but found {_kind(first)} in "
                f"{first_method!r} and {_kind(tensor)} in {method!r}; rename one of the buffers"
            )
        if not torch.equal(
            tensor.reshape(-1).view(torch.uint8), first.reshape(-1).view(torch.uint8)
        ):
            raise ArenaError(
                f"buffer {name!r}: expected one initial value but found different ones in "
                f"{first_method!r} and {method!r}; share one tensor between the modules, or rename "
                f"one of the buffers"
            )
    if not first.is_contiguous():
        raise ArenaError(
            f"buffer {name!r}: expected contiguous state but found strides "
            f"{tuple(first.stride())}; export the methods with pte_arenas.export, which stores "
            f"state contiguously"
        )
    return SharedBuffer(name, first.detach(), dict.fromkeys(tensors, name))


def _kind(tensor: torch.Tensor) -> str:
    return f"{name_of(tensor.dtype)} of sizes {tuple(tensor.shape)}"
