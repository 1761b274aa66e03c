"""What a plan's instructions refer to."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import value
from splice_values import packed

from pte_arenas.planned import tensors_in, used_values
from pte_arenas.wire.Chain import ChainT
from pte_arenas.wire.DelegateCall import DelegateCallT
from pte_arenas.wire.EValue import EValueT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.FreeCall import FreeCallT
from pte_arenas.wire.Instruction import InstructionT
from pte_arenas.wire.InstructionArguments import InstructionArguments
from pte_arenas.wire.KernelCall import KernelCallT
from pte_arenas.wire.KernelTypes import KernelTypes
from pte_arenas.wire.MoveCall import MoveCallT
from pte_arenas.wire.OptionalTensorList import OptionalTensorListT
from pte_arenas.wire.Program import Program, ProgramT
from pte_arenas.wire.TensorList import TensorListT

CALLS = {
    "kernel": (InstructionArguments.KernelCall, KernelCallT(0, [1, 2]), {1, 2}),
    "delegate": (InstructionArguments.DelegateCall, DelegateCallT(0, [3, 3]), {3}),
    "move": (InstructionArguments.MoveCall, MoveCallT(1, 4), {1, 4}),
    "free": (InstructionArguments.FreeCall, FreeCallT(1), set()),
    "tensor list": (InstructionArguments.KernelCall, KernelCallT(0, [5]), {5, 0, 2}),
    "optional list": (InstructionArguments.KernelCall, KernelCallT(0, [6, 1]), {6, 1, -1, 3}),
    "out of range": (InstructionArguments.KernelCall, KernelCallT(0, [-1, 99]), {-1, 99}),
    "nothing": (InstructionArguments.NONE, None, set()),
}


def plan(**fields: Any) -> Any:
    values = [value([2], memory_id=i) for i in (1, 2, 2, 3)]
    values += [
        value([2], memory_id=None),
        EValueT(KernelTypes.TensorList, TensorListT([0, 2])),
        EValueT(KernelTypes.OptionalTensorList, OptionalTensorListT([-1, 3])),
    ]
    program = ProgramT(executionPlan=[ExecutionPlanT(name="m", values=values, **fields)])
    return Program.GetRootAs(packed(program)).ExecutionPlan(0)


@pytest.mark.parametrize(("kind", "call", "used"), CALLS.values(), ids=CALLS.keys())
def test_used_values(kind: int, call: Any, used: set[int]) -> None:
    instruction = InstructionT(kind, call)
    assert used_values(plan(chains=[ChainT(instructions=[instruction])])) == used


def test_results_are_used() -> None:
    assert used_values(plan(outputs=[4, 1])) == {4, 1}
    assert used_values(plan()) == set()


def test_tensors_in() -> None:
    found = [(each.value, each.memory_id) for each in tensors_in(plan(), {2, 3})]
    assert found == [(1, 2), (2, 2), (3, 3)]
    assert list(tensors_in(plan(), set())) == []
