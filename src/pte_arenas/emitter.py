"""Emits a lowered program with its arenas."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir._serialize._cord import Cord

from pte_arenas import _exir, optional
from pte_arenas.bind import Place, PlannedMethod
from pte_arenas.declare import Arena
from pte_arenas.dtypes import name_of
from pte_arenas.errors import ArenaError
from pte_arenas.exporter import SharedArena, SharedBuffer
from pte_arenas.files import replacing
from pte_arenas.initial import InitialValues, private_values
from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot
from pte_arenas.lower import lower
from pte_arenas.memory import MethodMemory, ProgramMemory
from pte_arenas.normalize import user_name
from pte_arenas.place import ArenaPlanning
from pte_arenas.plan import Block, plan_arena
from pte_arenas.splice import splice_program
from pte_arenas.unprepared import (
    check_complete,
    check_not_swallowed,
    check_untouched,
    share_by_name,
)


class ArenaProgramManager(ExecutorchProgramManager):  # type: ignore[misc]  # untyped
    """An `ExecutorchProgramManager` whose program has arenas.

    Attributes:
        memory: How many bytes the program plans, and how many it would without sharing.
    """

    memory: ProgramMemory

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file; an existing file is replaced only by a complete one.

        Raises:
            ArenaError: The path does not end with `.pte`.
            OSError: The file cannot be written.
        """
        target = Path(path)
        if target.suffix != ".pte":
            raise ArenaError(f"expected a path that ends with .pte but found {str(target)!r}")
        with replacing(target) as sibling, sibling.open("wb") as file:
            self.write_to_file(file)


def to_executorch(
    edge: EdgeProgramManager,
    arenas: Sequence[SharedArena | Arena] = (),
    config: ExecutorchBackendConfig | None = None,
    *,
    require_arenas: bool = True,
    in_place: bool = True,
) -> ArenaProgramManager:
    """Plans and emits a lowered program, as `edge.to_executorch(config)` does, with its arenas.

    The file needs a runtime that knows arenas: others refuse to load its methods. With
    `require_arenas=False` others load it too; docs/compatibility.md says when they are right.

    Args:
        edge: The lowered programs; left as they are.
        arenas: `Exported.arenas` of the export that the programs come from; or declared arenas,
            for programs exported in another way: there one name is one slot.
        config: As stock takes it; every memory planning pass works.
        require_arenas: Whether other runtimes are to refuse the methods. False takes exactly one
            arena, of state on the CPU, and memory id 2 for it.
        in_place: Update state where it is instead of computing all of it anew and copying it
            back, where the graph proves that nobody sees the difference. Such a file may use
            kernels of this package's runtime library, but not if arenas are not required.

    Raises:
        ArenaError: The arenas do not fit the programs, exceed their capacity, or cannot do without
            a runtime that knows them.
    """
    if not isinstance(edge, EdgeProgramManager):
        raise ArenaError(
            f"expected lowered programs (an EdgeProgramManager) but found {type(edge).__name__}; "
            f"lower them with to_edge_transform_and_lower"
        )
    edge_programs = _exir.edge_programs(edge)
    check_untouched(edge_programs)
    arenas = share_by_name(arenas, edge_programs)
    check_complete(arenas, edge_programs)
    check_not_swallowed(arenas, edge_programs)
    if not require_arenas:
        optional.check_arenas(arenas)
    config = config or ExecutorchBackendConfig()
    dim_order = _exir.uses_dim_order(edge)
    programs = {
        name: lower(program, dim_order=dim_order, in_place=in_place and require_arenas)
        for name, program in edge_programs.items()
    }
    initial = InitialValues()
    private: Sequence[SharedArena] = ()
    if not require_arenas:
        private = optional.private_arenas(programs, arenas, config.memory_planning_pass)
    all_arenas = [*arenas, *private]
    layouts, places = _lay_out(all_arenas, initial)
    planning = ArenaPlanning(
        all_arenas, layouts, places, list(programs), sized=not require_arenas, in_place=in_place
    )
    if config.do_quant_fusion_and_const_prop:
        programs = {
            name: _exir.fold_constants(program, places.get(name, {}))
            for name, program in programs.items()
        }
    config = dataclasses.replace(
        planning.wrap(config),
        do_quant_fusion_and_const_prop=False,  # done, with live state
        run_reinplace_pass=False,  # overwrites values that are still read; `in_place` does not
        reinplace_extra_ops=None,
    )

    def make_manager(
        execution_programs: dict[str, Any],
        config_methods: dict[str, Any] | None,
        config: ExecutorchBackendConfig,
        named_data: Any,
    ) -> ArenaProgramManager:
        planned = planning.finish()
        layouts = planning.layouts[: len(arenas)]
        if not require_arenas:
            planned = optional.renumber(execution_programs, planned)
        for program in execution_programs.values():
            _exir.drop_mutated_inputs(program)
        output = _exir.emit(execution_programs, config_methods, config)
        _restore_names(output)
        initial.add_to(output, private_values(execution_programs, planned))
        if not require_arenas:
            optional.check_operators(output.program)
            optional.add_initial_values(output.program, planning.layouts, planned)
            planned = optional.without_private(planned)
        memory = _memory(execution_programs, layouts, planned)
        serializer, cord, data = _exir.serialize(output, config, named_data)
        bindings = {name: method.bindings for name, method in planned.items()}
        manager = object.__new__(ArenaProgramManager)
        manager.__dict__.update(
            _execution_programs=execution_programs,
            _config_methods=config_methods,
            _named_data=named_data,
            _emitter_output=output,
            _data_serializer=serializer,
            _pte_data=_splice(cord, layouts, bindings, config) if layouts else cord,
            _tensor_data=data,
            _buffer=None,
            _etrecord=None,
            memory=memory,
        )
        return manager

    with warnings.catch_warnings():
        # Stock warns that it drops initial values; here they are kept.
        warnings.filterwarnings("ignore", message="Mutation on a buffer in the model is detected")
        manager = _exir.to_executorch(_exir.with_programs(edge, programs), config, make_manager)
    for warning in planning.warnings:
        warnings.warn(warning, UserWarning, stacklevel=2)
    return cast(ArenaProgramManager, manager)


def _memory(
    programs: Mapping[str, Any],
    layouts: Sequence[ArenaLayout],
    planned: Mapping[str, PlannedMethod],
) -> ProgramMemory:
    methods = {}
    for name, method in planned.items():
        sizes = programs[name].graph_module.meta["non_const_buffer_sizes"]
        shared = sum(sizes[binding.memory_id] for binding in method.bindings)
        methods[name] = MethodMemory(sum(sizes[1:]) - shared, method.unshared)
    return ProgramMemory({layout.name: layout.size for layout in layouts}, methods)


def _restore_names(output: Any) -> None:
    """Gives buffers their names in the user's module back, wherever a file has names."""
    for plan in output.program.execution_plan:
        for value in plan.values:
            info = getattr(value.val, "extra_tensor_info", None)
            if info is not None and info.fully_qualified_name:
                info.fully_qualified_name = user_name(info.fully_qualified_name)
    for tag, names in (output.external_constant_map or {}).items():
        output.external_constant_map[tag] = {user_name(name): i for name, i in names.items()}


def _splice(
    cord: Cord,
    layouts: Sequence[ArenaLayout],
    bindings: Mapping[str, Sequence[ArenaBinding]],
    config: ExecutorchBackendConfig,
) -> Cord:
    spliced = Cord()
    chunks = splice_program(
        _exir.chunks(cord), layouts, bindings, segment_alignment=config.segment_alignment
    )
    for chunk in chunks:
        spliced.append(chunk)
    return spliced


def _lay_out(
    arenas: Sequence[SharedArena], initial: InitialValues
) -> tuple[list[ArenaLayout], dict[str, dict[str, Place]]]:
    """Places every shared buffer; the result is the same for every method."""
    layouts: list[ArenaLayout] = []
    places: dict[str, dict[str, Place]] = {}
    for index, shared in enumerate(arenas):
        arena, buffers = shared.arena, shared.buffers
        keep = arena.initial == "values"
        plan = plan_arena(
            arena.name,
            [
                Block(buffer.name, buffer.values.nbytes, buffer.values.itemsize)
                for buffer in buffers
            ],
            alignment=arena.alignment,
            capacity=arena.capacity,
        )
        for slot, (buffer, offset) in enumerate(zip(buffers, plan.offsets, strict=True)):
            for method, fqn in buffer.fqns.items():
                places.setdefault(method, {})[fqn] = Place(index, slot, offset)
        layouts.append(
            ArenaLayout(
                name=arena.name,
                size=plan.size,
                alignment=arena.alignment,
                lifetime=arena.lifetime,
                device_type=arena.device_type,
                device_index=arena.device_index,
                slots=tuple(
                    _slot(buffer, offset, initial.index(buffer.values) if keep else 0)
                    for buffer, offset in zip(buffers, plan.offsets, strict=True)
                ),
            )
        )
    return layouts, places


def _slot(buffer: SharedBuffer, offset: int, data_buffer_idx: int) -> ArenaSlot:
    values = buffer.values
    return ArenaSlot(
        fqn=buffer.name,
        dtype=name_of(values.dtype),
        sizes=tuple(values.shape),
        dim_order=tuple(range(values.dim())),
        offset=offset,
        nbytes=values.nbytes,
        data_buffer_idx=data_buffer_idx,
    )
