"""Reads the instructions of a plan, and which of its values each of them uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pte_arenas.errors import InvalidProgramError
from pte_arenas.planned import calls_in, items_of, text, values_of
from pte_arenas.timeline import Instruction
from pte_arenas.wire.DelegateCall import DelegateCall
from pte_arenas.wire.FreeCall import FreeCall
from pte_arenas.wire.JumpFalseCall import JumpFalseCall
from pte_arenas.wire.KernelCall import KernelCall
from pte_arenas.wire.MoveCall import MoveCall

_Lists = Mapping[int, Sequence[int]]
"""The items of the values that are lists of tensors."""


class Execution(NamedTuple):
    """What a plan executes.

    Attributes:
        instructions: Those of all chains in a row.
        uses: By value, the instructions that read or write it, directly or in a list.
        written: By value, the instructions that write it. A delegate is taken to write what nothing
            before it has written.
    """

    instructions: list[Instruction]
    uses: dict[int, list[int]]
    written: dict[int, list[int]]


def read_instructions(plan: Any, where: str) -> Execution:
    """Reads and checks the instructions of a plan.

    Args:
        plan: The execution plan in the file.
        where: Its path, for messages.

    Raises:
        InvalidProgramError: An instruction refers to what the plan does not have.
    """
    lists = {v: items for v in range(plan.ValuesLength()) if (items := items_of(plan, v))}
    read = Execution([], defaultdict(list), defaultdict(list))
    for c in range(plan.ChainsLength()):
        _read_chain(plan, plan.Chains(c), f"{where}.chains[{c}]", lists, read)
    return read


def _read_chain(plan: Any, chain: Any, where: str, lists: _Lists, read: Execution) -> None:
    first = len(read.instructions)
    for i, call in enumerate(calls_in(chain)):
        instruction = _instruction(plan, call, first, chain.InstructionsLength())
        values = values_of(call)
        if instruction is None or not all(0 <= v < plan.ValuesLength() for v in values):
            raise InvalidProgramError(
                f"{where}.instructions[{i}]",
                "expected an instruction over values, named operators and delegates of the plan",
            )
        for v in dict.fromkeys(_with_items(lists, values)):
            read.uses[v].append(first + i)
        for v in _results(lists, instruction, values, read):
            read.written[v].append(first + i)
        read.instructions.append(instruction)


def _results(
    lists: _Lists, instruction: Instruction, values: tuple[int, ...], read: Execution
) -> list[int]:
    # Kernels have their results as last argument, several of them as a list.
    if instruction.kind == "kernel":
        return list(_with_items(lists, values[-1:]))
    if instruction.kind == "delegate":
        return [v for v in values if v not in read.written]
    return list(values[1:])  # of a move, what it moves to


def _instruction(plan: Any, call: Any, first: int, length: int) -> Instruction | None:
    """The instruction; None where it refers to what the plan does not have."""
    if isinstance(call, KernelCall):
        operator = _at(plan.Operators, call.OpIndex(), plan.OperatorsLength())
        names = [text(operator.Name()), text(operator.Overload())] if operator else []
        return Instruction(kind="kernel", name=".".join(filter(None, names))) if names else None
    if isinstance(call, DelegateCall):
        delegate = _at(plan.Delegates, call.DelegateIndex(), plan.DelegatesLength())
        return Instruction(kind="delegate", name=text(delegate.Id())) if delegate else None
    if isinstance(call, JumpFalseCall):
        goes_to = call.DestinationInstruction()
        fits = 0 <= goes_to <= length
        return Instruction(kind="jump", destination=first + goes_to) if fits else None
    if isinstance(call, MoveCall):
        return Instruction(kind="move")
    return Instruction(kind="free") if isinstance(call, FreeCall) else None


def _at(get: Callable[[int], Any], index: int, length: int) -> Any:
    return get(index) if 0 <= index < length else None


def _with_items(lists: _Lists, values: Iterable[int]) -> Iterator[int]:
    for v in values:
        yield v
        yield from lists.get(v, ())
