"""The calls of an emitted method and where their tensors lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from executorch.exir.schema import (
    DelegateCall,
    ExecutionPlan,
    KernelCall,
    OptionalTensorList,
    Tensor,
    TensorList,
)

from pte_arenas.dtypes import DTYPES_BY_CODE

# Every operator that lowering makes of a write into part of a tensor, or of a whole copy.
_WRITES = frozenset(
    {"copy", "copy_", "fill", "index_copy", "index_copy_", "index_fill", "index_put", "index_put_"}
    | {"masked_scatter", "scatter", "select_scatter", "slice_scatter", "update_cache"}
)


@dataclass(frozen=True)
class Operand:
    """A tensor of a call; `place` is its memory id and offset, None for constants."""

    value: int
    sizes: tuple[int, ...]
    nbytes: int
    place: tuple[int, int] | None


@dataclass(frozen=True)
class Call:
    """A kernel or delegate call.

    Attributes:
        operator: Such as `aten::add.out`; `delegate` for a delegate.
        operands: Its tensors in the order of the arguments, those of lists too. The last one is
            where a kernel leaves its result.
    """

    operator: str
    operands: tuple[Operand, ...]

    @property
    def result(self) -> Operand:
        """Where a kernel leaves its result."""
        return self.operands[-1]

    @property
    def writes_part(self) -> bool:
        """Whether it is of the operators that write part of a tensor, or copy all of it."""
        return self.operator.partition("::")[2].partition(".")[0] in _WRITES


def calls_of(plan: ExecutionPlan) -> list[Call]:
    """Reads the calls of a method in the order of execution."""
    (chain,) = plan.chains
    calls = []
    for instruction in chain.instructions:
        call = instruction.instr_args
        if isinstance(call, KernelCall):
            found = plan.operators[call.op_index]
            name = f"{found.name}.{found.overload}" if found.overload else found.name
            calls.append(Call(name, tuple(_operands(plan, call.args))))
        elif isinstance(call, DelegateCall):
            calls.append(Call("delegate", tuple(_operands(plan, call.args))))
    return calls


def plan_of(program: Any, method: str) -> ExecutionPlan:
    """The plan of a method of an `ExecutorchProgramManager`."""
    plans = program.executorch_program.execution_plan
    return next(plan for plan in plans if plan.name == method)


def activations(program: Any, method: str) -> int:
    """Bytes of the memory id that a method's activations have."""
    sizes: list[int] = plan_of(program, method).non_const_buffer_sizes
    return sizes[1]


def _operands(plan: ExecutionPlan, values: list[int]) -> Iterator[Operand]:
    for index in values:
        value = plan.values[index].val
        if isinstance(value, Tensor):
            yield _operand(index, value)
        elif isinstance(value, (TensorList, OptionalTensorList)):
            yield from _operands(plan, [item for item in value.items if item >= 0])


def _operand(index: int, tensor: Tensor) -> Operand:
    at = tensor.allocation_info
    place = at and (at.memory_id, at.memory_offset_high << 32 | at.memory_offset_low)
    sizes = tuple(tensor.sizes)
    nbytes = prod(sizes, start=DTYPES_BY_CODE[tensor.scalar_type].width)
    return Operand(index, sizes, nbytes, place)
