"""Scratch arenas: activations share memory; inputs, results and a method's own state do not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from against_eager import LOAD_ORDERS, Model, assert_equal, check_calls, eager_outputs, repeated
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import KernelCall, MoveCall, Tensor
from executorch.exir.tensor import TensorSpec
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import generate
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan

import pte_arenas as pa
from pte_arenas.runtime import load_program
from pte_arenas.scratch import separate

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
PARTITIONERS = {"portable": None, "xnnpack": [XnnpackPartitioner()]}
SCRATCH = pa.Arena("tmp", lifetime="scratch")
ARENAS = {"no arena": (), "scratch": (SCRATCH,)}


class Kept(nn.Module):
    """F1, F10, F11: a method's own state, and methods that leave nothing of their memory alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 2)
        self.register_buffer("total", torch.full((2, 2), 5.0))
        self.register_buffer("shared", torch.full((2, 2), 2.0))

    def stateful(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1

    def stateless(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(self.linear(x) @ x.t(), -1)
        return torch.cat([y, x]).relu().sum(0), y @ x

    def late(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.cat([x, x.tanh(), x.sigmoid()])
        return self.linear(z).sum(0) + y  # y is needed last

    def view(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 3 + 1).view(4)
        return y, y.view(2, 2) @ x

    def branch(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        z = torch.cond(
            x.sum() > 0,
            lambda y: torch.softmax(y + 1, -1) @ y,
            lambda y: torch.cond(y.max() > 1, lambda y: (y * 4).exp(), lambda y: y.neg(), (y,)),
            (y,),
        )
        return z, y @ y

    def shares(self, x: torch.Tensor) -> torch.Tensor:
        self.shared.mul_(x)
        return torch.softmax(self.shared @ x, -1)

    def own(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def loops(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        carry, sums = scan(lambda c, row: (c + row.exp(), (c * row).sin()), x[0] * 2, x)
        return carry, sums, torch_map(lambda row: row.relu() + row * 2, x * 3)

    def several(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, indices = (x * 2).topk(1)
        return values, indices, *(x + 1).chunk(2), *x.max(0)


METHODS = {
    "stateful": (X,),
    "stateless": (X,),
    "late": (X, X),
    "view": (X,),
    "branch": (X,),
    "shares": (X,),
    "own": (X,),
    "loops": (X,),
    "several": (X,),
}
CALLS = repeated(
    ("stateful", (X,)),
    ("stateless", (X * 3,)),
    ("stateful", (X * 2,)),
    ("branch", (X,)),
    ("late", (X, X * 5)),
    ("branch", (-X,)),
    ("shares", (X,)),
    ("view", (X * 4,)),
    ("branch", (-X - 5,)),
    ("own", (X,)),
    ("several", (X,)),
    ("loops", (X * 0.5,)),
)
MODEL = Model(Kept, METHODS, CALLS, (), tolerance=1e-6)


@functools.cache
def _lowered(backend: str) -> EdgeProgramManager:
    module = Kept()
    entries = {name: pa.EntryPoint(getattr(module, name), args) for name, args in METHODS.items()}
    programs = pa.export(entries).programs
    return to_edge_transform_and_lower(programs, partitioner=PARTITIONERS[backend])


def _emit(
    backend: str, arenas: Sequence[pa.Arena], config: ExecutorchBackendConfig | None = None
) -> pa.ArenaProgramManager:
    return pa.to_executorch(_lowered(backend), arenas, config)


@pytest.mark.fault("F1", "F11", "F17")
@pytest.mark.parametrize("arenas", ARENAS.values(), ids=ARENAS.keys())
@pytest.mark.parametrize("backend", PARTITIONERS)
def test_values(backend: str, arenas: Sequence[pa.Arena]) -> None:
    program = load_program(_emit(backend, arenas).buffer)
    for load_order in ("all_first", "lazy"):  # to reload a method restarts its own buffers
        check_calls(MODEL, program.session(), load_order)


@pytest.mark.fault("F10")
@pytest.mark.parametrize("arenas", ARENAS.values(), ids=ARENAS.keys())
@pytest.mark.parametrize("backend", PARTITIONERS)
def test_f10_results_stay_when_other_methods_run(backend: str, arenas: Sequence[pa.Arena]) -> None:
    session = load_program(_emit(backend, arenas).buffer).session()
    results = [session.execute(name, args) for name, args in CALLS]
    for (name, _), have, want in zip(CALLS, results, eager_outputs(MODEL), strict=True):
        for one, other in zip(have, want, strict=True):
            assert_equal(one, other, 1e-6, name)


def _bound_values(plan: Any, memory_id: int) -> set[int]:
    """The values of a plan that lie in a memory id."""
    return {
        index
        for index, value in enumerate(plan.values)
        if isinstance(value.val, Tensor)
        and value.val.allocation_info is not None
        and value.val.allocation_info.memory_id == memory_id
    }


def _result_values(plan: Any) -> set[int]:
    """The values whose tensors a method may return: its results and what moves there."""
    results = set(plan.outputs)
    moves = [
        instruction.instr_args
        for chain in plan.chains
        for instruction in chain.instructions
        if isinstance(instruction.instr_args, MoveCall)
    ]
    while more := {move.move_from for move in moves if move.move_to in results} - results:
        results |= more
    return results


def _own_buffers(plan: Any) -> Iterator[int]:
    """The values that a method writes with `copy_`: state."""
    copies = {index for index, op in enumerate(plan.operators) if op.name == "aten::copy_"}
    for chain in plan.chains:
        for instruction in chain.instructions:
            call = instruction.instr_args
            if isinstance(call, KernelCall) and call.op_index in copies:
                yield call.args[0]


@pytest.mark.parametrize("alignment", [16, 64])
@pytest.mark.parametrize("backend", PARTITIONERS)
def test_what_lies_in_scratch(backend: str, alignment: int) -> None:
    planning = MemoryPlanningPass(alignment=alignment)
    emitted = _emit(backend, (SCRATCH,), ExecutorchBackendConfig(memory_planning_pass=planning))
    layout = pa.read_layout(emitted.buffer)
    plain = _emit(backend, (), ExecutorchBackendConfig(memory_planning_pass=planning))
    unbound = {plan.name: plan for plan in plain.executorch_program.execution_plan}
    for plan in emitted.executorch_program.execution_plan:
        bindings = layout.method(plan.name).bindings
        shared = {value for b in bindings for value in _bound_values(plan, b.memory_id)}
        kept = {*plan.inputs, *_result_values(plan), *_own_buffers(plan)}
        assert not shared & kept
        everything = {*shared, *_bound_values(plan, 1)}
        assert everything == _bound_values(unbound[plan.name], 1)
        assert len(shared) >= len(everything - kept) > 0 or plan.name in ("stateful", "own")


@pytest.mark.parametrize("backend", PARTITIONERS)
def test_size_is_that_of_the_largest(backend: str) -> None:
    emitted = _emit(backend, (SCRATCH,))
    layout = pa.read_layout(emitted.buffer)
    used = {m.name: b.used_bytes for m in layout.methods for b in m.bindings}
    # The planner rounds tensors up to 16 bytes; XNNPACK may read 64 bytes behind the last.
    padding = 64 if backend == "xnnpack" else 0
    assert layout.arenas[0].size == -(-max(used.values()) // 16) * 16 + padding
    assert layout.arenas[0].size > 0
    for method in layout.methods:
        for binding in method.bindings:
            assert method.planned_buffers[binding.memory_id - 1].size == 0


def test_memory() -> None:
    alone = _emit("portable", ()).memory
    shared = _emit("portable", (SCRATCH,))
    memory = shared.memory
    assert alone.planned_bytes == alone.unshared_bytes == memory.unshared_bytes
    assert {name: method.unshared_bytes for name, method in memory.methods.items()} == {
        name: method.planned_bytes for name, method in alone.methods.items()
    }
    assert memory.planned_bytes < memory.unshared_bytes
    layout = pa.read_layout(shared.buffer)
    assert memory.planned_bytes == layout.planned_bytes
    assert memory.arenas == {"tmp": layout.arenas[0].size}
    assert {m.name: m.planned_bytes for m in layout.methods} == {
        name: method.planned_bytes for name, method in memory.methods.items()
    }


def test_memory_as_a_table() -> None:
    memory = pa.ProgramMemory(
        {"state": 1024, "tmp": 2048},
        {"encode": pa.MethodMemory(64, 3136), "decode": pa.MethodMemory(128, 1500)},
    )
    assert (memory.planned_bytes, memory.unshared_bytes) == (3264, 4636)
    assert str(memory) == (
        "               planned  if each had its own\n"
        "arena state      1,024\n"
        "arena tmp        2,048\n"
        "method encode       64                3,136\n"
        "method decode      128                1,500\n"
        "program          3,264                4,636"
    )


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    generated = generate(1000 + seed)
    methods = {name: generated.arguments(name, 0) for name in generated.methods}
    model = Model(
        generated.make,
        methods,
        [(name, generated.arguments(name, at)) for name, at in generated.calls],
        tolerance=1e-5,
    )
    module = generated.make()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in methods.items()},
        [SCRATCH, pa.Arena("state", ["*"])],
    )
    backend, load_order = list(itertools.product(PARTITIONERS, LOAD_ORDERS))[seed % 6]
    edge = to_edge_transform_and_lower(exported.programs, partitioner=PARTITIONERS[backend])
    emitted = pa.to_executorch(edge, exported.arenas)
    check_calls(model, load_program(emitted.buffer).session(), load_order)


def test_capacity() -> None:
    memory = _emit("portable", (SCRATCH,)).memory
    size = memory.arenas["tmp"]
    fits = pa.Arena("tmp", lifetime="scratch", capacity=size)
    assert _emit("portable", (fits,)).memory == memory
    with pytest.raises(pa.ArenaError) as error:
        _emit("portable", (pa.Arena("tmp", lifetime="scratch", capacity=size - 1),))
    largest = {
        method.name: -(-binding.used_bytes // 16) * 16
        for method in pa.read_layout(_emit("portable", (SCRATCH,)).buffer).methods
        for binding in method.bindings
    }
    first, second, third = sorted(largest, key=lambda name: (-largest[name], name))[:3]
    assert str(error.value) == (
        f"arena 'tmp': expected at most its capacity of {size - 1} bytes but found {size}; the "
        f"largest are {first!r} with {largest[first]} bytes, {second!r} with {largest[second]} "
        f"bytes, {third!r} with {largest[third]} bytes: raise the capacity or change these methods"
    )


def test_alignment() -> None:
    with pytest.raises(pa.ArenaError) as error:
        _emit("portable", (pa.Arena("tmp", lifetime="scratch", alignment=8),))
    assert str(error.value) == (
        "arena 'tmp': expected an alignment of at least 16 for the activations of method "
        "'stateful' but found 8"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"buffers": ["a"]},
            "arena 'tmp': expected no buffers in a scratch arena but found ['a']; state belongs in "
            "an arena with lifetime 'state'",
            id="buffers",
        ),
        pytest.param(
            {"initial": "zeros"},
            "arena 'tmp': expected no initial values in a scratch arena but found initial='zeros'; "
            "its contents mean nothing when a method begins",
            id="initial",
        ),
    ],
)
def test_what_a_scratch_arena_does_not_take(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.Arena("tmp", lifetime="scratch", **arguments)
    assert str(error.value) == message


def test_unknown_lifetime() -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.Arena("tmp", lifetime="forever")  # type: ignore[arg-type]
    assert str(error.value) == (
        "arena 'tmp': expected lifetime 'state' or 'scratch' but found 'forever'"
    )


def test_one_on_each_device() -> None:
    with pytest.raises(pa.ArenaError) as error:
        _emit("portable", (SCRATCH, pa.Arena("other", lifetime="scratch")))
    assert str(error.value) == (
        "arena 'other': expected one scratch arena on cpu but found 'tmp' there; activations of "
        "all methods fit in one"
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(0, 8), st.integers(0, 3)),
        min_size=2,
        max_size=10,
    ),
    st.integers(0, 100),
)
def test_what_shares_bytes_stays_together(
    drawn: list[tuple[int, int, int, int]], padding: int
) -> None:
    """Any plan: tensors that overlapped while both are alive still do, others never begin to."""
    specs = []
    for offset, size, begin, length in drawn:
        spec = TensorSpec(torch.float32, torch.Size([size * 4]))
        spec.mem_id, spec.mem_offset = 1, offset * 16
        spec.lifetime = [begin, begin + length]
        specs.append(spec)
    graph = torch.fx.Graph()
    first = graph.placeholder("x")
    first.meta["spec"] = specs[0]
    for spec in specs[1:]:
        graph.call_function(torch.relu, (first,)).meta["spec"] = spec
    graph.output(first).meta["spec"] = specs[0]
    before = [(spec.mem_offset, spec.mem_offset + spec.allocated_memory) for spec in specs]
    size = max(end for _, end in before) + padding
    separated = separate(torch.fx.GraphModule(nn.Module(), graph), 1, size)
    moved = {id(spec) for spec in separated.activations}
    assert id(specs[0]) not in moved
    for (one, at), (other, other_at) in itertools.combinations(zip(specs, before, strict=True), 2):
        together = (id(one) in moved) == (id(other) in moved)
        distance = other.mem_offset - one.mem_offset
        if at[0] < other_at[1] and other_at[0] < at[1]:
            alive = one.lifetime[0] <= other.lifetime[1] and other.lifetime[0] <= one.lifetime[1]
            assert together or not alive
            assert not together or distance == other_at[0] - at[0]
        elif together and at[0] != at[1] and other_at[0] != other_at[1]:
            assert distance >= one.allocated_memory or -distance >= other.allocated_memory
    for spec in specs:
        room = separated.scratch if id(spec) in moved else separated.own
        assert spec.mem_offset % 16 == 0
        assert spec.mem_offset + spec.allocated_memory + padding <= room <= size + padding
