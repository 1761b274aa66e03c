"""Emits a lowered program with its arenas."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir._serialize._cord import Cord
from executorch.exir.schema import Buffer, Tensor

from pte_arenas import _exir
from pte_arenas.errors import ArenaError
from pte_arenas.exporter import SharedArena, SharedBuffer
from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot
from pte_arenas.lower import lower
from pte_arenas.place import ArenaPlanning, Place, PlannedMethod
from pte_arenas.plan import Block, plan_arena
from pte_arenas.splice import splice_program


class ArenaProgramManager(ExecutorchProgramManager):  # type: ignore[misc]  # untyped
    """An `ExecutorchProgramManager` whose program has arenas."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file; an existing file is replaced only by a complete one.

        Raises:
            ArenaError: The path does not end with `.pte`.
            OSError: The file cannot be written.
        """
        target = Path(path)
        if target.suffix != ".pte":
            raise ArenaError(f"expected a path that ends with .pte but found {str(target)!r}")
        sibling = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with sibling.open("wb") as file:
                self.write_to_file(file)
            sibling.replace(target)
        finally:
            sibling.unlink(missing_ok=True)


def to_executorch(
    edge: EdgeProgramManager,
    arenas: Sequence[SharedArena] = (),
    config: ExecutorchBackendConfig | None = None,
) -> ArenaProgramManager:
    """Plans and emits a lowered program, as `edge.to_executorch(config)` does, with its arenas.

    The file needs a runtime that knows arenas: others refuse to load its methods.

    Args:
        edge: The lowered programs; left as they are.
        arenas: `Exported.arenas` of the export that the programs come from.
        config: As stock takes it; every memory planning pass works.

    Raises:
        ArenaError: The arenas do not fit the programs, or exceed their capacity.
    """
    config = config or ExecutorchBackendConfig()
    dim_order = _exir.uses_dim_order(edge)
    programs = {
        name: lower(program, dim_order=dim_order)
        for name, program in _exir.edge_programs(edge).items()
    }
    initial = InitialValues()
    layouts, places = _lay_out(arenas, initial)
    planning = ArenaPlanning(layouts, places, list(programs), sized=False)
    config = dataclasses.replace(
        config, memory_planning_pass=planning.wrap(config.memory_planning_pass)
    )

    def make_manager(
        execution_programs: dict[str, Any],
        config_methods: dict[str, Any] | None,
        config: ExecutorchBackendConfig,
        named_data: Any,
    ) -> ArenaProgramManager:
        planned = planning.finish()
        output = _exir.emit(execution_programs, config_methods, config)
        initial.add_to(output, _private_values(execution_programs, planned))
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
        )
        return manager

    with warnings.catch_warnings():
        # Stock warns that it drops initial values; here they are kept.
        warnings.filterwarnings("ignore", message="Mutation on a buffer in the model is detected")
        manager = _exir.to_executorch(_exir.with_programs(edge, programs), config, make_manager)
    return cast(ArenaProgramManager, manager)


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


class InitialValues:
    """The initial values of mutable buffers, each distinct one once; zeros are not stored."""

    def __init__(self) -> None:
        self._values: list[bytes] = [b""]  # index 0 means none
        self._index: dict[bytes, int] = {}

    def index(self, tensor: torch.Tensor) -> int:
        """Returns the index of a contiguous tensor's bytes, 0 where all of them are zero."""
        data = tensor.detach().reshape(-1).view(torch.uint8)
        if not bool(data.any()):
            return 0
        value = data.numpy().tobytes()
        key = hashlib.sha256(value).digest()
        if key not in self._index:
            self._index[key] = len(self._values)
            self._values.append(value)
        return self._index[key]

    def add_to(self, output: Any, private: Iterable[tuple[str, int, int, torch.Tensor]]) -> None:
        """Puts the values into emitted programs, and private buffers' indices into their tensors.

        Args:
            output: What stock emitted, with no initial values of mutable buffers.
            private: Method, memory id, offset and values of each private mutable buffer.
        """
        plans = {plan.name: plan for plan in output.program.execution_plan}
        for method, memory_id, offset, values in private:
            index = self.index(values)
            if index:
                _tensor_at(plans[method].values, memory_id, offset).data_buffer_idx = index
        if output.mutable_data is not None:
            raise ArenaError(
                "expected no other initial values in the program but found "
                f"{len(output.mutable_data) - 1}"
            )
        if len(self._values) > 1:
            output.mutable_data = [Buffer(storage=value) for value in self._values]


def _tensor_at(values: Sequence[Any], memory_id: int, offset: int) -> Tensor:
    """The first tensor at a place: inputs come first, so it is the buffer and not a view of it."""
    for value in values:
        tensor = value.val
        if isinstance(tensor, Tensor) and tensor.allocation_info is not None:
            at = tensor.allocation_info
            if (at.memory_id, at.memory_offset_high << 32 | at.memory_offset_low) == (
                memory_id,
                offset,
            ):
                return tensor
    raise AssertionError(f"expected a tensor at byte {offset} of memory id {memory_id}")


def _private_values(
    programs: Mapping[str, Any], planned: Mapping[str, PlannedMethod]
) -> Iterator[tuple[str, int, int, torch.Tensor]]:
    for method, plan in planned.items():
        program = programs[method]
        for name, (memory_id, offset) in plan.private.items():
            values = program.state_dict.get(name, program.constants.get(name))
            yield method, memory_id, offset, values.contiguous()


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
        dtype=str(values.dtype).removeprefix("torch."),
        sizes=tuple(values.shape),
        dim_order=tuple(range(values.dim())),
        offset=offset,
        nbytes=values.nbytes,
        data_buffer_idx=data_buffer_idx,
    )
