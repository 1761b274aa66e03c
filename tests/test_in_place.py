"""State is updated where it is when nobody can tell, and only then."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from against_eager import Model, check_calls, emit, repeated
from executorch.exir.schema import KernelCall, ScalarType
from executorch.exir.schema import Tensor as PlannedTensor
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

ROWS = torch.arange(1.0, 13.0).view(3, 4)
INDEX = torch.tensor([3, 0, 2])


class Cache(nn.Module):
    """A cache of 64 rows; each method writes it in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(256.0).view(64, 4))
        self.register_buffer("other", torch.ones(64, 4))
        self.register_buffer("n", torch.zeros(64, 4, dtype=torch.int32))

    def index_assign(self, i: Tensor, x: Tensor) -> None:
        self.k[i] = x

    def index_middle(self, x: Tensor) -> None:
        self.k.view(4, 16, 4)[:, torch.tensor([5, 1])] = x

    def index_two(self, x: Tensor) -> None:
        self.k[torch.tensor([[1], [2]]), torch.tensor([0, 3])] = x

    def index_broadcast(self, i: Tensor) -> None:
        self.k[i] = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def index_copy(self, i: Tensor, x: Tensor) -> None:
        self.k.index_copy_(0, i, x)

    def index_put(self, i: Tensor, x: Tensor) -> None:
        self.k.index_put_((i,), x)

    def scatter(self, i: Tensor, x: Tensor) -> None:
        self.k.scatter_(0, i.view(3, 1), x[:, :1])

    def zero(self) -> None:
        self.k.zero_()

    def fill(self) -> None:
        self.k.fill_(2.5)

    def copy(self, x: Tensor) -> None:
        self.k.copy_(x)

    def slice_assign(self, x: Tensor) -> None:
        self.k[7:10] = x

    def strided_slice(self, x: Tensor) -> None:
        self.k[1:7:2] = x

    def column(self, x: Tensor) -> None:
        self.k[4:7, 2] = x[:, 0]

    def one_row(self, x: Tensor) -> None:
        self.k[-1] = x[0]

    def narrow(self, x: Tensor) -> None:
        self.k.narrow(0, 20, 3).copy_(x)

    def element_wise(self, x: Tensor) -> None:
        self.k.add_(x[0]).mul_(0.5).clamp_(-3.0, 40.0)

    def masked(self, x: Tensor) -> None:
        self.k.copy_(torch.where(self.k > 3, self.k, x[0]))
        self.k.masked_fill_(self.k > 30, 0.5)

    def two_writes(self, i: Tensor, x: Tensor) -> None:
        self.k[i] = x
        self.k[10:13] = x * 2
        self.k.neg_()

    def int_state(self) -> None:
        self.n.add_(1)
        self.n[3] = 7

    def computed(self, x: Tensor) -> None:
        self.k.copy_(torch.cat([x] * 21 + [x[:1]]) @ torch.eye(4))

    def read_after_write(self, x: Tensor) -> Tensor:
        self.k[7:10] = x
        return self.k.sum(dim=0)

    def read_before_write(self, x: Tensor) -> Tensor:
        total = self.k.sum(dim=0)
        self.k.add_(total)
        return total


SAFE: dict[str, tuple[Tensor, ...]] = {
    "index_assign": (INDEX, ROWS),
    "index_middle": (torch.arange(32.0).view(4, 2, 4),),
    "index_two": (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),),
    "index_broadcast": (INDEX,),
    "index_copy": (INDEX, ROWS),
    "index_put": (INDEX, ROWS),
    "scatter": (INDEX, ROWS),
    "zero": (),
    "fill": (),
    "copy": (torch.ones(64, 4),),
    "slice_assign": (ROWS,),
    "strided_slice": (ROWS,),
    "column": (ROWS,),
    "one_row": (ROWS,),
    "narrow": (ROWS,),
    "element_wise": (ROWS,),
    "masked": (ROWS,),
    "two_writes": (INDEX, ROWS),
    "int_state": (),
    "computed": (ROWS,),
    "read_after_write": (ROWS,),
    "read_before_write": (ROWS,),
}


class Unsafe(nn.Module):
    """Old values, or views of them, are read after the write; or results are the state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(12.0).view(3, 4))
        self.register_buffer("j", torch.ones(3, 4))
        self.register_buffer("p", torch.tensor([1, 2, 0]))
        self.register_buffer("c", torch.zeros(2, 3, 4))

    def old_clone_later(self, x: Tensor) -> Tensor:
        old = self.k.clone()
        self.k.add_(x)
        return old * 2 + self.k

    def old_row_later(self, x: Tensor) -> Tensor:
        old = self.k[0].clone()
        self.k[0] = x[1]
        return old + self.k[0]

    def old_returned(self, x: Tensor) -> Tensor:
        old = self.k.clone()
        self.k.mul_(x)
        return old

    def old_view_returned(self, x: Tensor) -> Tensor:
        old = self.k.clone().view(2, 6)
        self.k.copy_(x)
        return old

    def new_returned(self, x: Tensor) -> Tensor:
        self.k.add_(x)
        return self.k

    def new_view_returned(self, x: Tensor) -> Tensor:
        self.k.add_(x)
        return self.k.view(4, 3)

    def swap(self) -> None:
        old = self.k.clone()
        self.k.copy_(self.j)
        self.j.copy_(old)

    def shift(self) -> None:
        self.k[1:] = self.k[:-1].clone()

    def reverse(self) -> None:
        self.k.copy_(self.k.flip(0))

    def transposed_sum(self, x: Tensor) -> None:
        self.k.copy_(self.k + self.k.flip(1) @ x.t() @ x)

    def broadcast_of_itself(self) -> None:
        self.k.sub_(self.k[0].clone())

    def softmax(self) -> None:
        self.k.copy_(torch.softmax(self.k, dim=-1))

    def cumulative(self) -> None:
        self.k.copy_(self.k.cumsum(0))

    def chain_with_old(self, x: Tensor) -> Tensor:
        middle = self.k + x
        self.k.copy_(middle * 2)
        return middle.sum(dim=1)

    def both_ways(self, x: Tensor) -> None:
        self.k.add_(self.j)
        self.j.sub_(self.k)

    def in_branch(self, x: Tensor) -> Tensor:
        y = torch.cond(
            x.sum() > 0,
            lambda x, k: (k + x).sum(dim=0),
            lambda x, k: (k - x).sum(dim=0),
            (x, self.k),
        )
        self.k.add_(1.0)
        return y + torch.cond(x.sum() > 0, lambda k: k[0] * 2, lambda k: k[1] * 3, (self.k,))

    def accumulate(self, x: Tensor) -> None:
        self.k.index_put_((torch.tensor([0, 0]),), x[:2], accumulate=True)

    def rows_of_itself(self) -> None:
        self.k.add_(1.0)
        self.k[torch.tensor([1, 2, 0])] = self.k.clone()

    def scattered_itself(self) -> None:
        self.k.mul_(2.0)
        self.k.scatter_(0, torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]]), self.k.clone())

    def view_of_itself(self) -> None:
        self.k.add_(1.0)
        self.k[1:] = self.k.view(6, 2)[:4].reshape(2, 4).clone()

    def inverted(self) -> None:
        self.p.copy_(torch.scatter(self.p, 0, self.p, torch.arange(3)))

    def new_for_two(self, x: Tensor) -> None:
        self.j.copy_(x)
        self.j.div_(2.0)
        self.k = self.j * 2

    def same_for_two(self, x: Tensor) -> None:
        self.j.copy_(x * 2)
        self.k.copy_(self.j)

    def mask(self, x: Tensor) -> None:
        self.k[x > 0] = 1.0

    def apart(self, x: Tensor) -> None:
        self.c[torch.arange(2), :, torch.tensor([2, 0])] = x[:2, :3]


UNSAFE = {
    name: (ROWS,) if "x" in inspect.signature(method).parameters else ()
    for name, method in vars(Unsafe).items()
    if not name.startswith("_")
}


def _model(make: Any, methods: dict[str, tuple[Tensor, ...]], buffers: list[str]) -> Model:
    calls = repeated(*methods.items(), times=2)
    return Model(make, methods, calls, buffers=buffers, tolerance=1e-5)


@functools.cache
def _safe_program(in_place: bool) -> pa.ArenaProgramManager:
    return emit(_model(Cache, SAFE, ["*"]), in_place=in_place)


@pytest.mark.parametrize("in_place", [True, False])
def test_safe_updates_are_right(in_place: bool) -> None:
    class Seen(Cache):
        def get(self) -> tuple[Tensor, ...]:
            return self.k.clone(), self.other.clone(), self.n.clone()

    model = _model(Seen, {**SAFE, "get": ()}, ["*"])
    calls = [call for each in model.calls for call in (each, ("get", ()))]
    model = Model(Seen, model.methods, calls, tolerance=1e-5)
    check_calls(model, load_program(emit(model, in_place=in_place).buffer).session())


@pytest.mark.parametrize("method", SAFE)
def test_safe_updates_copy_and_plan_no_slot(method: str) -> None:
    plan = _plan(_safe_program(True), method)
    operators = [plan.operators[call.op_index].name for call in _calls(plan)]
    assert "aten::copy_" not in operators
    arena_id = len(plan.non_const_buffer_sizes) - 1
    slot_bytes = 64 * 4 * 4
    outside = [
        tensor
        for call in _calls(plan)
        for tensor in [_tensor(plan, call.args[-1])]
        if tensor.allocation_info.memory_id != arena_id and _nbytes(tensor) >= slot_bytes
    ]
    # `computed` builds its value from an operand as large; the last operator writes to the slot.
    assert len(outside) == (1 if method == "computed" else 0)
    if method not in ("copy", "computed"):
        assert sum(plan.non_const_buffer_sizes) < slot_bytes


def test_stock_form_plans_and_copies_the_slot() -> None:
    plan = _plan(_safe_program(False), "slice_assign")
    assert "aten::copy_" in [plan.operators[call.op_index].name for call in _calls(plan)]
    assert sum(plan.non_const_buffer_sizes) >= 64 * 4 * 4


def test_unsafe_updates_are_right() -> None:
    class Seen(Unsafe):
        def get(self) -> tuple[Tensor, ...]:
            return self.k.clone(), self.j.clone(), self.p.clone(), self.c.clone()

        def start(self) -> None:
            self.k.copy_(torch.arange(12.0).view(3, 4))
            self.j.fill_(1.0)

    calls = [
        call
        for name, args in UNSAFE.items()
        for call in (("start", ()), *repeated((name, args), ("get", ()), times=2))
    ]
    model = Model(Seen, {**UNSAFE, "get": (), "start": ()}, calls, tolerance=1e-5)
    check_calls(model, load_program(emit(model).buffer).session())


def _plan(program: pa.ArenaProgramManager, method: str) -> Any:
    return next(plan for plan in program.executorch_program.execution_plan if plan.name == method)


def _calls(plan: Any) -> Iterator[KernelCall]:
    for instruction in plan.chains[0].instructions:
        if isinstance(instruction.instr_args, KernelCall):
            yield instruction.instr_args


def _tensor(plan: Any, value: int) -> PlannedTensor:
    return plan.values[value].val


def _nbytes(tensor: PlannedTensor) -> int:
    width = 1 if tensor.scalar_type is ScalarType.BOOL else 4
    return torch.Size(tensor.sizes).numel() * width
