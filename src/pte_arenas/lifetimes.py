"""Reads when the planned tensors of a program hold their bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pte_arenas.errors import InvalidProgramError
from pte_arenas.instructions import Execution, read_instructions
from pte_arenas.layout import MethodLayout, ProgramLayout
from pte_arenas.overlap import Places
from pte_arenas.planned import PlannedTensor, read_tensor, tensors_in, text
from pte_arenas.read import bytes_of, layout_of
from pte_arenas.rules.tensors import check_nbytes, check_type, span
from pte_arenas.timeline import MethodTimeline, ProgramTimeline, TensorLifetime, TensorRole
from pte_arenas.wire.Program import Program

_EVERY_MEMORY_ID = range(1 << 32)  # AllocationDetails.memory_id is 32 bits wide


def read_timeline(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
) -> ProgramTimeline:
    """Reads the instructions of every method and the lifetimes of its planned tensors.

    A lifetime is what the instructions tell: from the first one that uses a tensor to the last one,
    and to the end of a loop that it is used in. Memory planning may have held the bytes longer.
    State is what lies in a state arena, has an initial value, or is read before anything has
    written it; a buffer without an initial value whose first use is a delegate cannot be told from
    an activation.

    Args:
        source: Path of a `.pte` file, or its bytes.

    Raises:
        InvalidProgramError: The program breaks a rule of docs/checks.md, or an instruction or a
            planned tensor is none that ExecuTorch could execute.
        OSError: The file cannot be read.
    """
    return read_both(source)[1]


def read_both(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
) -> tuple[ProgramLayout, ProgramTimeline]:
    """Reads a program's memory layout and its timeline; see `read_layout` and `read_timeline`."""
    data = bytes_of(source)
    layout = layout_of(data)
    program = Program.GetRootAs(memoryview(data))
    methods = []
    for m, method in enumerate(layout.methods):
        where = f"execution_plan[{m}]"
        plan = program.ExecutionPlan(m)
        execution = read_instructions(plan, where)
        tensors = _Tensors(where, layout, method, execution).read(plan)
        methods.append(
            MethodTimeline(
                name=method.name, instructions=tuple(execution.instructions), tensors=tensors
            )
        )
    return layout, ProgramTimeline(methods=tuple(methods))


class _Loop(NamedTuple):
    """Instructions that may run again, from the first to the jump behind them."""

    begin: int
    jump: int


class _Tensors:
    """Reads the planned tensors of one plan."""

    def __init__(
        self, where: str, layout: ProgramLayout, method: MethodLayout, execution: Execution
    ) -> None:
        self._where = where
        self._uses = execution.uses
        self._written = execution.written
        self._inputs, self._outputs = frozenset(method.inputs), frozenset(method.outputs)
        self._length = max(1, len(execution.instructions))
        self._loops = [
            _Loop(instruction.destination, i)
            for i, instruction in enumerate(execution.instructions)
            if instruction.destination is not None and instruction.destination <= i
        ]
        self._sizes = dict(enumerate([buffer.size for buffer in method.planned_buffers], start=1))
        self._state_ids = set()
        for binding in method.bindings:
            arena = layout.arenas[binding.arena]
            self._sizes[binding.memory_id] = arena.size
            if arena.lifetime == "state":
                self._state_ids.add(binding.memory_id)

    def read(self, plan: Any) -> tuple[TensorLifetime, ...]:
        tensors = [self._read_tensor(each) for each in tensors_in(plan, _EVERY_MEMORY_ID)]
        places = Places(tensors)
        return tuple(self._with_source(tensor, places) for tensor in tensors)

    def _read_tensor(self, planned: PlannedTensor) -> TensorLifetime:
        where = f"{self._where}.values[{planned.value}]"
        tensor = read_tensor(planned)
        check_type(where, tensor)
        check_nbytes(where, tensor, overflow=where)
        _check_place(where, planned.memory_id, tensor.offset, tensor.nbytes, self._sizes)
        role = self._role(planned, tensor.data_buffer_idx)
        begin, end = self._lifetime(planned.value, role)
        extra = planned.table.ExtraTensorInfo()
        return TensorLifetime(
            value=planned.value,
            name=text(extra.FullyQualifiedName()) if extra else "",
            memory_id=planned.memory_id,
            offset=tensor.offset,
            nbytes=tensor.nbytes,
            dtype=tensor.dtype,
            sizes=tensor.sizes,
            role=role,
            begin=begin,
            end=end,
            uses=tuple(self._uses.get(planned.value, ())),
        )

    def _role(self, planned: PlannedTensor, initial_value: int) -> TensorRole:
        if planned.memory_id in self._state_ids or initial_value:
            return "state"
        if planned.value in self._outputs:
            return "output"
        return "input" if planned.value in self._inputs else "activation"

    def _lifetime(self, value: int, role: TensorRole) -> tuple[int, int]:
        if role == "state":
            return 0, self._length
        uses = self._uses.get(value, [])
        if value in self._inputs:
            begin, end = 0, max(uses, default=0) + 1
        else:
            begin = min(uses, default=self._length if role == "output" else 0)
            end = max(uses, default=-1) + 1
        if role == "output":
            return begin, self._length
        # Inputs are there before a loop that begins with the first instruction.
        return begin, _through_loops(-1 if value in self._inputs else begin, end, self._loops)

    def _with_source(self, tensor: TensorLifetime, places: Places) -> TensorLifetime:
        """Where a tensor is read first: its bytes are live since another value wrote them.

        Where none did, they are from an earlier execution.
        """
        if tensor.role in {"state", "input"} or tensor.value in self._inputs or not tensor.uses:
            return tensor
        first = tensor.uses[0]
        if first in self._written.get(tensor.value, ()):
            return tensor
        writes = (self._written_before(each, first) for each in [tensor, *places.sharers(tensor)])
        sources = [write for write in writes if write is not None]
        if sources:
            return tensor.model_copy(update={"begin": max(sources)})
        whole = {"role": "state", "begin": 0, "end": self._length}
        return tensor.model_copy(update=whole)

    def _written_before(self, tensor: TensorLifetime, instruction: int) -> int | None:
        """When a tensor was last written before an instruction; inputs at 0 at the latest."""
        writes = [each for each in self._written.get(tensor.value, ()) if each < instruction]
        given = [0] if tensor.value in self._inputs else []
        return max([*given, *writes], default=None)


def _check_place(
    where: str, memory_id: int, offset: int, nbytes: int, sizes: Mapping[int, int]
) -> None:
    if memory_id not in sizes:
        raise InvalidProgramError(
            f"{where}.allocation_info.memory_id",
            f"expected 1 to {len(sizes) + 1} (exclusive) but found {memory_id}",
        )
    if offset + nbytes > sizes[memory_id]:
        raise InvalidProgramError(
            where,
            f"expected bytes {span(offset, nbytes)} inside the {sizes[memory_id]} bytes "
            f"of memory id {memory_id}",
        )


def _through_loops(begin: int, end: int, loops: Sequence[_Loop]) -> int:
    """Where a lifetime ends when what was there before a loop is used in it each time."""
    grows = True
    while grows:
        ends = [loop.jump + 1 for loop in loops if begin < loop.begin < end <= loop.jump]
        grows = bool(ends)
        end = max([end, *ends])
    return end
