"""Finds tensors in the planned memory of a program file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any, NamedTuple

from pte_arenas.dtypes import DTYPES_BY_CODE
from pte_arenas.errors import InvalidProgramError
from pte_arenas.frame import DAMAGED
from pte_arenas.layout import BoundTensor
from pte_arenas.wire.DelegateCall import DelegateCall
from pte_arenas.wire.FreeCall import FreeCall
from pte_arenas.wire.InstructionArguments import InstructionArguments
from pte_arenas.wire.JumpFalseCall import JumpFalseCall
from pte_arenas.wire.KernelCall import KernelCall
from pte_arenas.wire.KernelTypes import KernelTypes
from pte_arenas.wire.MoveCall import MoveCall
from pte_arenas.wire.OptionalTensorList import OptionalTensorList
from pte_arenas.wire.Tensor import Tensor
from pte_arenas.wire.TensorList import TensorList

_CALLS = {
    InstructionArguments.KernelCall: KernelCall,
    InstructionArguments.DelegateCall: DelegateCall,
    InstructionArguments.MoveCall: MoveCall,
    InstructionArguments.JumpFalseCall: JumpFalseCall,
    InstructionArguments.FreeCall: FreeCall,
}
_LISTS = {
    KernelTypes.TensorList: TensorList,
    KernelTypes.OptionalTensorList: OptionalTensorList,
}


class PlannedTensor(NamedTuple):
    """A tensor of a plan that has planned memory, as the file has it.

    Attributes:
        value: Index into the plan's values.
        memory_id: The memory that it lies in.
        table: The tensor.
        position: First byte of the tensor's table, relative to the start of the file.
    """

    value: int
    memory_id: int
    table: Any
    position: int


def tensors_in(plan: Any, memory_ids: Collection[int]) -> Iterator[PlannedTensor]:
    """Finds the tensors that a plan places in some of its memory ids, in the plan's order."""
    if not memory_ids:
        return
    for v in range(plan.ValuesLength()):
        value = plan.Values(v)
        is_tensor = value.ValType() == KernelTypes.Tensor
        tensor = _read(Tensor, value.Val()) if is_tensor else None
        if tensor is None:
            continue
        allocation = tensor.AllocationInfo()
        if allocation is not None and (memory_id := allocation.MemoryId()) in memory_ids:
            yield PlannedTensor(v, memory_id, tensor, value.Val().Pos)


def read_tensor(planned: PlannedTensor) -> BoundTensor:
    """Reads where a tensor lies and of what kind it is; nothing is checked."""
    tensor = planned.table
    allocation = tensor.AllocationInfo()
    scalar_type = tensor.ScalarType()
    sizes = numbers(tensor.SizesAsNumpy())
    dtype = DTYPES_BY_CODE.get(scalar_type)
    return BoundTensor.model_construct(
        value=planned.value,
        dtype=dtype.name if dtype else scalar_type,
        sizes=sizes,
        offset=allocation.MemoryOffsetHigh() << 32 | allocation.MemoryOffsetLow(),
        nbytes=prod(sizes, start=dtype.width) if dtype else 0,
        data_buffer_idx=tensor.DataBufferIdx(),
    )


def used_values(plan: Any) -> set[int]:
    """Indices of the values that a plan's instructions and results refer to, also in lists."""
    used = set(numbers(plan.OutputsAsNumpy()))
    for c in range(plan.ChainsLength()):
        for call in calls_in(plan.Chains(c)):
            used.update(values_of(call))
    for v in [v for v in used if 0 <= v < plan.ValuesLength()]:
        used.update(items_of(plan, v))
    return used


def calls_in(chain: Any) -> Iterator[Any]:
    """The tables of a chain's instructions; None for one of no known kind."""
    for i in range(chain.InstructionsLength()):
        instruction = chain.Instructions(i)
        yield _read(_CALLS.get(instruction.InstrArgsType()), instruction.InstrArgs())


def values_of(call: Any) -> tuple[int, ...]:
    """Indices of the values that an instruction reads or writes."""
    if isinstance(call, MoveCall):
        return call.MoveFrom(), call.MoveTo()
    if isinstance(call, JumpFalseCall):
        return (call.CondValueIndex(),)
    if isinstance(call, (KernelCall, DelegateCall)):
        return numbers(call.ArgsAsNumpy())
    return ()


def items_of(plan: Any, v: int) -> tuple[int, ...]:
    """Indices of the values in a list of tensors; none for a value of another kind."""
    value = plan.Values(v)
    items = _read(_LISTS.get(value.ValType()), value.Val())
    return numbers(items.ItemsAsNumpy()) if items else ()


def _read(reader: Any, union: Any) -> Any:
    """The table that a union holds, or None where it is of no kind that is looked for."""
    if reader is None or union is None:
        return None
    table = reader()
    table.Init(union.Bytes, union.Pos)
    return table


def numbers(vector: Any) -> tuple[int, ...]:
    """A vector of scalars; the generated readers give 0 for an absent one."""
    return () if isinstance(vector, int) else tuple(vector.tolist())


def text(raw: bytes | None) -> str:
    """A string of the file; raises `InvalidProgramError` where it is not UTF-8."""
    try:
        return (raw or b"").decode()
    except UnicodeDecodeError:
        raise InvalidProgramError("program", DAMAGED) from None
