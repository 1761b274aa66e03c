"""Exports several entry points of one or more modules over shared state."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from pte_arenas import normalize
from pte_arenas.capture import ModuleCopies, Target, capture
from pte_arenas.control_flow import check_bodies
from pte_arenas.declare import Arena, EntryPoint, assign_buffers, check_declarations
from pte_arenas.dtypes import DTYPES, name_of
from pte_arenas.errors import ArenaError
from pte_arenas.state import Buffer, Buffers, addresses


@dataclass(frozen=True)
class SharedBuffer:
    """A buffer that becomes a slot of an arena.

    Attributes:
        name: Name of the slot.
        values: Initial values, contiguous; they also give the dtype and sizes.
        fqns: By method, the name that the exported program of that method has for it.
    """

    name: str
    values: torch.Tensor
    fqns: Mapping[str, str]

    def __post_init__(self) -> None:
        dtype = name_of(self.values.dtype)
        if dtype not in DTYPES:
            raise ArenaError(
                f"buffer {self.name!r}: expected a dtype that program files have but found "
                f"{dtype}; keep it as another one, such as the parts of complex numbers as floats "
                f"(torch.view_as_real)"
            )


@dataclass(frozen=True)
class SharedArena:
    """A declared arena with the buffers that its patterns stand for."""

    arena: Arena
    buffers: tuple[SharedBuffer, ...]


@dataclass(frozen=True)
class Exported:
    """What `export` returns.

    Attributes:
        programs: An `ExportedProgram` for each method, for stock `to_edge_transform_and_lower`.
        arenas: The arenas with their buffers, for `to_executorch`.
    """

    programs: dict[str, ExportedProgram]
    arenas: tuple[SharedArena, ...]


@dataclass
class _Method:
    name: str
    root: int
    program: ExportedProgram
    mutated: set[str]
    renamed: dict[str, str] = field(default_factory=dict)


def export(entry_points: Mapping[str, EntryPoint | Any], arenas: Sequence[Arena] = ()) -> Exported:
    """Exports methods that share state.

    The modules are left as they were. Initial values of state are those of now. Names of buffers
    are those in the module that a method belongs to.

    Args:
        entry_points: By the method's name in the program: an `EntryPoint`, or a bound method or
            module that takes no arguments.
        arenas: The arenas to hold shared buffers.

    Returns:
        Programs to lower and arenas to emit.

    Raises:
        ArenaError: A declaration or a method cannot work; the message says what to do instead.
    """
    check_declarations(entry_points, arenas)
    entries = {
        name: entry if isinstance(entry, EntryPoint) else EntryPoint(entry)
        for name, entry in entry_points.items()
    }
    targets = {name: Target.of(name, entry) for name, entry in entries.items()}
    roots = list({id(target.module): target.module for target in targets.values()}.values())
    buffers = Buffers(roots)
    assign_buffers(arenas, buffers.names(), ())  # wrong names fail before the long work
    copies = ModuleCopies(roots, buffers.strided())
    methods = [
        _capture(name, entries[name], target, copies, roots, buffers)
        for name, target in targets.items()
    ]
    mutated = {id(buffers.of(m.root, name)) for m in methods for name in m.mutated}
    shared = _shared(methods, buffers, mutated)
    layout = assign_buffers(arenas, buffers.names(), [buffer.name for buffer in shared])
    declared = {name: buffers.named(name) for names in layout.values() for name in names}
    _warn_private(shared, declared, methods, buffers)
    state = mutated | {id(buffer) for buffer in declared.values()}
    for method in methods:
        _check_aliases(method, roots, [buffer for buffer in buffers.all if id(buffer) in state])
        _normalize(method, buffers, state, {id(buffer) for buffer in declared.values()})
    _warn_empty(arenas, layout)
    return Exported(
        {method.name: method.program for method in methods},
        tuple(
            SharedArena(
                arena,
                tuple(_slot(declared[name], methods, buffers) for name in layout[arena.name]),
            )
            for arena in arenas
        ),
    )


def _capture(
    name: str,
    entry: EntryPoint,
    target: Target,
    copies: ModuleCopies,
    roots: list[torch.nn.Module],
    buffers: Buffers,
) -> _Method:
    program = capture(name, entry, target, copies, contiguous=False)
    mutated = normalize.mutated_buffers(name, program)
    if mutated and normalize.has_strided_input(program):
        # Kernels refuse operands in different memory formats, and state is kept contiguous.
        program = capture(name, entry, target, copies, contiguous=True)
    root = next(index for index, module in enumerate(roots) if module is target.module)
    return _Method(name, root, program, mutated)


def _touched(method: _Method) -> list[str]:
    nodes = {node.name: node for node in method.program.graph.nodes if node.op == "placeholder"}
    return [
        spec.target
        for spec in method.program.graph_signature.input_specs
        if spec.kind is InputKind.BUFFER and spec.target and nodes[spec.arg.name].users
    ]


def _shared(methods: list[_Method], buffers: Buffers, mutated: set[int]) -> list[Buffer]:
    """Returns buffers that some method mutates and more than one method touches."""
    users: dict[int, set[str]] = {}
    for method in methods:
        for name in _touched(method):
            users.setdefault(id(buffers.of(method.root, name)), set()).add(method.name)
    return [
        buffer
        for buffer in buffers.all
        if id(buffer) in mutated and len(users.get(id(buffer), ())) > 1
    ]


def _warn_private(
    shared: list[Buffer], declared: Mapping[str, Buffer], methods: list[_Method], buffers: Buffers
) -> None:
    held = {id(buffer) for buffer in declared.values()}
    for buffer in shared:
        if id(buffer) in held:
            continue
        users = [
            method.name
            for method in methods
            if any(buffers.of(method.root, name) is buffer for name in _touched(method))
        ]
        warnings.warn(
            f"buffer {buffer.name!r} is used by the methods {', '.join(map(repr, users))} and "
            f"some of them change it, but no arena holds it: each method will have its own copy; "
            f"declare pte_arenas.Arena(..., buffers=[{buffer.name!r}]) to share it",
            UserWarning,
            stacklevel=3,
        )


def _warn_empty(arenas: Sequence[Arena], layout: Mapping[str, list[str]]) -> None:
    for arena in arenas:
        if arena.lifetime == "state" and arena.buffers is None and not layout[arena.name]:
            warnings.warn(
                f"arena {arena.name!r} holds nothing: no buffer is changed by one method and used "
                f"by another; name its buffers with buffers=[...]",
                UserWarning,
                stacklevel=3,
            )


def _check_aliases(method: _Method, roots: list[torch.nn.Module], state: list[Buffer]) -> None:
    """Refuses state that is also reached through something export takes for constant."""
    memory = {
        address: buffer.name
        for buffer in state
        for tensor in (buffer.base, *buffer.tensors, buffer.values)
        for address in addresses(tensor)
    }

    def owner(tensor: torch.Tensor) -> str | None:
        return next((memory[at] for at in addresses(tensor) if at in memory), None)

    for spec in method.program.graph_signature.input_specs:
        constant = method.program.constants.get(spec.target or "")
        if spec.kind is not InputKind.CONSTANT_TENSOR or not isinstance(constant, torch.Tensor):
            continue
        if (shared := owner(constant)) is not None:
            raise ArenaError(
                f"{method.name}: expected buffer {shared!r} to be read through the module but "
                f"found it read through an attribute that is no registered buffer, a closure "
                f"or a hook, which export takes for a constant; use the buffer itself, or "
                f"register the attribute with register_buffer"
            )
    for name, parameter in roots[method.root].named_parameters():
        if (shared := owner(parameter)) is not None:
            raise ArenaError(
                f"buffer {shared!r}: expected state with memory of its own but found that it "
                f"shares memory with the parameter {name!r}; clone() one of the two"
            )


def _normalize(method: _Method, buffers: Buffers, state: set[int], declared: set[int]) -> None:
    """Makes the captured program functional and marks its state, in place."""
    for buffer in buffers.all:
        if id(buffer) in state:
            if buffer.conflict is not None:
                raise ArenaError(buffer.conflict)
            normalize.merge_tied(method.program, method.root, buffer)
    check_bodies(method.name, method.program)
    normalize.spell_out_writes(method.program)
    method.program = program = normalize.functionalize(method.program)
    normalize.simplify_scatters(program)
    normalize.drop_clones(program)
    mutated = {
        spec.target
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.BUFFER_MUTATION
    }
    marked: dict[str, bool] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.BUFFER or spec.target is None:
            continue
        buffer = buffers.of(method.root, spec.target)
        if id(buffer) in declared or spec.target in mutated:
            marked[spec.target] = id(buffer) in declared
        if id(buffer) in state:
            values = program.state_dict if spec.target in program.state_dict else program.constants
            values[spec.target] = buffer.values
    method.renamed = normalize.rename_buffers(program)
    normalize.mark_state(
        program, {method.renamed.get(name, name): shared for name, shared in marked.items()}
    )


def _slot(buffer: Buffer, methods: list[_Method], buffers: Buffers) -> SharedBuffer:
    fqns = {
        method.name: method.renamed.get(buffer.names[method.root], buffer.names[method.root])
        for method in methods
        if method.root in buffer.names
    }
    return SharedBuffer(buffer.name, buffer.values, fqns)
