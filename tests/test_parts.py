"""Parts of state are read where they are when nobody can tell, and only then."""

from __future__ import annotations

import functools
import inspect

import pytest
import torch
from against_eager import LOAD_ORDERS, Model, check_calls, emit, repeated
from emitted_calls import calls_of, plan_of
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.tensor import TensorSpec
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.parts import place_parts
from pte_arenas.runtime import load_program

X = torch.arange(1.0, 5.0)
ROWS = torch.arange(1.0, 13.0).view(3, 4)


class Read(nn.Module):
    """Each method reads a part of a buffer that lies in one run."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.ones(5))
        self.register_buffer("k", torch.arange(64.0).view(16, 4))
        self.register_buffer("h", torch.arange(96.0).view(3, 8, 4))
        self.register_buffer("n", torch.arange(16))

    def prefix(self, x: Tensor) -> Tensor:
        return self.k[:3] * x

    def middle(self, x: Tensor) -> Tensor:
        return self.k.narrow(0, 5, 2) * x

    def last(self, x: Tensor) -> Tensor:
        return self.k[-1] + x

    def row(self, x: Tensor) -> Tensor:
        return self.k[7] + x

    def rows_of_row(self, x: Tensor) -> Tensor:
        return self.h[1][2:5] - x

    def rows_of_one(self, x: Tensor) -> Tensor:
        return self.h[1:2, 2:5] - x

    def of_view(self, x: Tensor) -> Tensor:
        return self.k.view(4, 4, 4)[2].view(16)[4:8].view(2, 2) @ x.view(2, 2)

    def end_clamped(self, x: Tensor) -> Tensor:
        return self.k[14:99] * x

    def row_as_batch(self, x: Tensor) -> Tensor:
        return self.k[7][None] @ x[:, None]

    def squeezed(self, x: Tensor) -> Tensor:
        return self.h[2:, 1:4].squeeze(0) - x

    def integers(self, x: Tensor) -> Tensor:
        return self.n[4:8] + x

    def then_written(self, x: Tensor) -> Tensor:
        y = self.k[2] * x
        self.k[2] = x
        return y

    def just_written(self, x: Tensor) -> Tensor:
        self.k[3] = x
        return self.k[2:4].sum(dim=0)

    def between_writes(self, x: Tensor) -> Tensor:
        self.k[1] = x
        y = self.k[:2] * 2
        self.k[0] = x + 1
        return y + self.k[:2]

    def old_read_later(
        self, x: Tensor
    ) -> Tensor:  # XNNPACK's one delegate reads it after the write
        y = self.k[2] * x
        self.k[2] = x
        return y + self.k[2]

    def copy_returned(self, x: Tensor) -> Tensor:
        y = self.k[2].clone().view(2, 2)
        self.k[2] = x
        return y

    def overlapping(self, x: Tensor) -> Tensor:
        self.k[1:4] = self.k[:3].clone()
        return x * 2

    def scaled_by_itself(self, x: Tensor) -> Tensor:
        self.k.mul_(self.k[0].clone())
        return x * 2

    def other_written(self, x: Tensor) -> Tensor:
        self.first.add_(1.0)
        return self.k[1] * x


READ = {name: (X,) for name in vars(Read) if not name.startswith("_")}


class Kept(nn.Module):
    """Parts that stay copies: they are no run, are read too late, or leave the method."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(64.0).view(16, 4))
        self.register_buffer("j", torch.zeros(4))

    def columns(self, x: Tensor) -> Tensor:
        return self.k[:, 1:3] * x[:2]

    def column(self, x: Tensor) -> Tensor:
        return self.k[:4, 1] * x

    def steps(self, x: Tensor) -> Tensor:
        return self.k[::2] * x

    def returned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.k[2:4], x + 1

    def moved(self) -> None:
        self.k[1:3] = self.k[4:6]

    def to_other(self) -> None:
        self.j.copy_(self.k[3])

    def computed_to_other(self) -> None:
        self.j.copy_(self.k[3])
        self.j.add_(self.k[4])

    def swapped(self, x: Tensor) -> None:
        old = self.j * 1
        self.j.copy_(self.k[3])
        self.k[3] = old + x

    def in_branch(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda row: row * 1, lambda row: row * 2, (self.k[5],))


KEPT = {
    name: (X,) if "x" in inspect.signature(method).parameters else ()
    for name, method in vars(Kept).items()
    if not name.startswith("_")
}


METHODS: dict[type[nn.Module], dict[str, tuple[Tensor, ...]]] = {Read: READ, Kept: KEPT}


class Filled(nn.Module):
    """A cache of which methods read as much as is filled."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 16, 4))

    def append(self, x: Tensor, positions: Tensor) -> Tensor:
        self.k.index_copy_(1, positions[-1:], x.view(2, 1, 4))
        filled = positions.shape[0]
        heads = [self.k[head].narrow(0, 0, filled) for head in range(2)]
        return torch.cat([(head.t() @ head).sum(dim=0) for head in heads])


def model_of(module: type[nn.Module], methods: dict[str, tuple[Tensor, ...]]) -> Model:
    class Seen(module):  # type: ignore[misc,valid-type]
        def get(self) -> tuple[Tensor, ...]:
            return tuple(buffer.clone() for buffer in self.buffers())

    calls = [call for each in repeated(*methods.items(), times=2) for call in (each, ("get", ()))]
    return Model(Seen, {**methods, "get": ()}, calls, tolerance=1e-5)


@functools.cache
def emitted(module: type[nn.Module], xnnpack: bool, in_place: bool) -> pa.ArenaProgramManager:
    partitioner = [XnnpackPartitioner()] if xnnpack else []
    return emit(model_of(module, METHODS[module]), partitioner, in_place=in_place)


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "copied"])
@pytest.mark.parametrize("xnnpack", [False, True], ids=["portable", "xnnpack"])
@pytest.mark.parametrize("module", [Read, Kept])
def test_parts_are_right(module: type[nn.Module], xnnpack: bool, in_place: bool) -> None:
    program = load_program(emitted(module, xnnpack, in_place).buffer)
    for load_order in LOAD_ORDERS:
        check_calls(model_of(module, METHODS[module]), program.session(), load_order)


@pytest.mark.parametrize("method", READ)
def test_parts_are_read_where_they_are(method: str) -> None:
    plan = plan_of(emitted(Read, False, True), method)
    arena = len(plan.non_const_buffer_sizes) - 1
    parts = [
        call
        for call in calls_of(plan)
        if call.operator.partition("::")[2].startswith(("slice_copy", "select_copy", "unsq", "sq"))
        if call.operands[0].place is not None and call.operands[0].place[0] == arena
    ]
    assert parts
    for call in parts:
        assert call.operator.startswith("pte_arenas::")
        assert call.result.place is not None
        assert call.result.place[0] == arena


@pytest.mark.parametrize("method", KEPT)
def test_other_parts_stay_copies(method: str) -> None:
    operators = [call.operator for call in calls_of(plan_of(emitted(Kept, False, True), method))]
    stock = {"aten::slice_copy.Tensor_out", "aten::select_copy.int_out"}
    assert stock.intersection(operators)


@pytest.mark.parametrize("xnnpack", [False, True], ids=["portable", "xnnpack"])
def test_a_part_may_be_as_long_as_is_filled(xnnpack: bool) -> None:
    dynamic = {"positions": {0: torch.export.Dim("filled", min=1, max=14)}}
    module = Filled()
    arguments = (torch.ones(8), torch.arange(5))
    entry = pa.EntryPoint(module.append, arguments, dynamic_shapes={"x": None, **dynamic})
    exported = pa.export({"append": entry}, arenas=[pa.Arena("state", ["*"])])
    partitioner = [XnnpackPartitioner()] if xnnpack else None
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioner)
    program = pa.to_executorch(edge, exported.arenas)
    plan = plan_of(program, "append")
    operators = [call.operator for call in calls_of(plan)]
    assert "pte_arenas::slice_copy.out" in operators
    assert operators.count("aten::slice_copy.Tensor_out") == 1  # of the positions
    session = load_program(program.buffer).session()
    for filled in range(1, 15):
        arguments = torch.arange(8.0) + filled, torch.arange(filled)
        (found,) = session.execute("append", arguments)
        torch.testing.assert_close(found, module.append(*arguments))


def test_files_for_other_runtimes_have_the_stock_form() -> None:
    program = emit(model_of(Read, {"prefix": (X,), "row": (X,)}), require_arenas=False)
    operators = {
        call.operator for name in ("prefix", "row") for call in calls_of(plan_of(program, name))
    }
    assert {"aten::slice_copy.Tensor_out", "aten::select_copy.int_out"} <= operators
    assert not any(operator.startswith("pte_arenas::") for operator in operators)


def test_arguments_by_name_stay_copies() -> None:
    graph = torch.fx.Graph()
    state = graph.placeholder("k")
    spec = TensorSpec.from_tensor(torch.zeros(16, 4))
    state.meta.update(val=torch.zeros(16, 4), spec=spec)
    part = graph.call_function(
        torch.ops.aten.slice_copy.Tensor_out, (state, 0), {"start": 4, "end": 6, "out": None}
    )
    part.meta.update(val=torch.zeros(2, 4), spec=TensorSpec.from_tensor(torch.zeros(2, 4)))
    graph.output(graph.call_function(torch.ops.aten.add.out, (part, 1)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert place_parts(module, {state: []}) == {}
    part.args, part.kwargs = (state, 0, 4, 6), {"out": None}
    assert place_parts(module, {state: []}) == {state: [(part, 64)]}
