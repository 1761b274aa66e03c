"""Reads what a program without arenas has in a memory id that its methods are said to share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pte_arenas.errors import ArenaError, InvalidProgramError
from pte_arenas.layout import InitialData, PlannedBuffer, ProgramLayout
from pte_arenas.merge import StateTensor, contradiction
from pte_arenas.planned import PlannedTensor, numbers, read_tensor, tensors_in, text, used_values
from pte_arenas.rules.arenas import check_initial_value
from pte_arenas.rules.tensors import check_nbytes, check_type, quoted
from pte_arenas.wire.TensorDataLocation import TensorDataLocation


@dataclass(frozen=True)
class ClaimedMemory:
    """The memory id in one method.

    Attributes:
        plan: Index of the method's plan.
        method: Name of the method.
        buffer: The planned buffer.
        tensors: What lies in it, in the order of the file.
        positions: First byte of each tensor's table in the file.
        used: Those tensors that the method does something with.
        has_xnnpack: Whether parts of the method run in XNNPACK.
    """

    plan: int
    method: str
    buffer: PlannedBuffer
    tensors: tuple[StateTensor, ...]
    positions: tuple[int, ...]
    used: tuple[StateTensor, ...]
    has_xnnpack: bool

    @property
    def where(self) -> str:
        """Path of the plan in the file."""
        return f"execution_plan[{self.plan}]"


def read_claimed(program: Any, layout: ProgramLayout, memory_id: int) -> list[ClaimedMemory]:
    """Reads a memory id in every method that has it.

    Args:
        program: The root of the file.
        layout: The layout of the same file.
        memory_id: The memory id that the methods are said to share.

    Raises:
        ArenaError: It cannot be shared state, or no method has it.
        InvalidProgramError: A tensor in it breaks a rule of docs/checks.md.
    """
    claimed = list(_read_methods(program, layout, memory_id))
    if not any(memory.tensors for memory in claimed):
        most = max((len(method.planned_buffers) for method in layout.methods), default=0)
        raise ArenaError(
            f"memory_id: expected one with tensors in it but found {memory_id}; the methods plan "
            f"{', '.join(map(str, range(1, most + 1))) or 'none'}"
        )
    _check_buffers(claimed, memory_id)
    return claimed


def device_of(buffer: PlannedBuffer) -> str:
    """The device of a planned buffer as messages show it."""
    return f"{buffer.device_type}:{buffer.device_index}"


def _read_methods(program: Any, layout: ProgramLayout, memory_id: int) -> Iterator[ClaimedMemory]:
    for index, method in enumerate(layout.methods):
        plan = program.ExecutionPlan(index)
        found = list(tensors_in(plan, {memory_id}))
        if memory_id > len(method.planned_buffers):
            continue
        buffer = method.planned_buffers[memory_id - 1]
        where = [f"execution_plan[{index}].values[{each.value}]" for each in found]
        _check_no_inputs(plan, method.name, found, where)
        tensors = tuple(
            _read_state(at, each, layout.initial_data)
            for at, each in zip(where, found, strict=True)
        )
        if buffer.size or tensors:
            values = used_values(plan)
            yield ClaimedMemory(
                index,
                method.name,
                buffer,
                tensors,
                positions=tuple(each.position for each in found),
                used=tuple(tensor for tensor in tensors if tensor.layout.value in values),
                has_xnnpack=any("xnnpack" in name.lower() for name in _delegates(plan)),
            )


def _delegates(plan: Any) -> list[str]:
    return [text(plan.Delegates(d).Id()) for d in range(plan.DelegatesLength())]


def _check_no_inputs(
    plan: Any, method: str, tensors: Sequence[PlannedTensor], where: Sequence[str]
) -> None:
    """Inputs are copied to their memory before each execution: that is no state."""
    inputs = {plan.Inputs(i): i for i in range(plan.InputsLength())}
    for at, tensor in zip(where, tensors, strict=True):
        if (number := inputs.get(tensor.value)) is not None:
            raise contradiction(at, "state", f"input {number} of method {quoted(method)}")


def _read_state(where: str, planned: PlannedTensor, data: InitialData | None) -> StateTensor:
    tensor = read_tensor(planned)
    check_type(where, tensor)
    check_nbytes(where, tensor, overflow=where)
    name = None
    extra = planned.table.ExtraTensorInfo()
    if extra is not None:
        name = text(extra.FullyQualifiedName())
        _check_location(f"{where}.extra_tensor_info", name, tensor.data_buffer_idx, extra)
    check_initial_value(f"{where}.data_buffer_idx", tensor, data)
    dim_order = numbers(planned.table.DimOrderAsNumpy())
    return StateTensor(where, tensor, dim_order, name or None)


def _check_location(where: str, name: str, index: int, extra: Any) -> None:
    if extra.Location() == TensorDataLocation.EXTERNAL:
        raise ArenaError(
            f"{where}.location: expected initial values inside the program but found them in a "
            f"data file under {quoted(name)}; export without external_mutable_weights "
            f"and external_constants"
        )
    if index and (segments := extra.MutableDataSegmentsIdx()):
        raise ArenaError(
            f"{where}.mutable_data_segments_idx: expected 0, where arenas have their initial "
            f"values, but found {segments}; export again with pte_arenas.export"
        )


def _check_buffers(claimed: Sequence[ClaimedMemory], memory_id: int) -> None:
    """Memory that is shared has one size and one device."""
    first = claimed[0]
    if first.buffer.size < 0:
        raise InvalidProgramError(
            f"{first.where}.non_const_buffer_sizes[{memory_id}]",
            f"expected at least 0 but found {first.buffer.size}",
        )
    if isinstance(first.buffer.device_type, int):
        raise ArenaError(
            f"{first.where}.non_const_buffer_device: expected cpu or cuda for memory id "
            f"{memory_id} but found device type {first.buffer.device_type}; this version of "
            "pte-arenas knows no other"
        )
    for memory in claimed[1:]:
        if memory.buffer.size != first.buffer.size:
            raise contradiction(
                f"{memory.where}.non_const_buffer_sizes[{memory_id}]",
                f"the {first.buffer.size} bytes of {first.where}",
                str(memory.buffer.size),
            )
        if device_of(memory.buffer) != device_of(first.buffer):
            raise contradiction(
                f"{memory.where}.non_const_buffer_device",
                f"memory id {memory_id} on {device_of(first.buffer)} as in {first.where}",
                device_of(memory.buffer),
            )
