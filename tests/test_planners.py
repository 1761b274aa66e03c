"""Every memory planning pass that a configuration may hold, beside arenas."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from against_eager import Model, check, check_calls, repeated
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.banked_memory_planning import (
    Bank,
    TargetMemoryMap,
    banked_memory_planning_pass,
)
from executorch.exir.error import InternalError
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, naive
from executorch.exir.pass_base import PassResult
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from faults import by_fault
from stateful_models import NamedLikeInput
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

X = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
METHODS = dict.fromkeys(("step", "peek", "plain", "choose", "put"), (X,))
CALLS = repeated(
    ("step", (X,)),
    ("plain", (X * 3,)),
    ("choose", (X,)),
    ("peek", (X * 2,)),
    ("choose", (-X,)),
    ("step", (X * 0.5,)),
    ("put", (X + 1,)),
    ("peek", (X,)),
)


class Mixed(nn.Module):
    """Shared state, a method's own, none, and state in branches; all of it starts with values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shared", torch.full((2, 3), 5.0))
        self.register_buffer("turn", torch.tensor([1.0]))
        self.register_buffer("own", torch.full((2, 3), 2.0))

    def step(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.shared.add_(x)
        self.own.mul_(1.5)
        y = torch.softmax(x @ x.t(), -1) @ self.own
        return y + self.shared, self.own - x

    def peek(self, x: Tensor) -> Tensor:
        return torch.relu(x @ x.t()) @ x + self.shared

    def plain(self, x: Tensor) -> Tensor:
        return torch.cat([x.relu(), x.sigmoid()]) * 2

    def choose(self, x: Tensor) -> Tensor:
        y = torch.cond(
            x.sum() > 0,
            lambda x, turn: x.tanh() * turn,
            lambda x, turn: x.exp() - turn,
            (x, self.turn),
        )
        self.turn.neg_()
        return y * 2

    def put(self, x: Tensor) -> None:
        self.shared.copy_(x)
        self.turn.add_(1.0)


MODEL = Model(Mixed, METHODS, CALLS, buffers=("shared", "turn"), tolerance=1e-6)


@functools.cache
def _lowered(
    buffers: tuple[str, ...] = ("shared", "turn"), *scratch: str
) -> tuple[EdgeProgramManager, tuple[pa.SharedArena, ...]]:
    module = Mixed()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in METHODS.items()},
        [pa.Arena("state", buffers), *(pa.Arena(name, lifetime="scratch") for name in scratch)],
    )
    return to_edge_transform_and_lower(exported.programs), exported.arenas


def _emit(config: ExecutorchBackendConfig, *lowered: Any) -> pa.ArenaProgramManager:
    edge, arenas = _lowered(*lowered)
    return pa.to_executorch(edge, arenas, config)


class PoolPass(MemoryPlanningPass):  # type: ignore[misc]
    """F9: puts the result of one operator into a pool of its own, memory id 3, while it runs."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and "softmax" in str(node.target):
                node.meta["spec"].mem_id = 3
        return super().run(graph_module, graph_signature)


class InputPoolPass(MemoryPlanningPass):  # type: ignore[misc]
    """Gives an id to every input, those that it does not plan included."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                node.meta["spec"].mem_id = 2
        return super().run(graph_module, graph_signature)


def side_by_side(
    alignment: int, specs: Iterable[Any], graph_module: Any, _: Any, extra_padding: int
) -> list[int]:
    """An algorithm from outside of exir: no two tensors of a pool share a byte."""
    reserved = getattr(graph_module, "input_mem_buffer_sizes", None) or []
    sizes = [0, 0, *reserved[2:]]
    sizes[: len(reserved)] = reserved
    for spec in specs:
        spec.realign(alignment)
        spec.mem_id = spec.mem_id or 1
        sizes += [0] * (spec.mem_id + 1 - len(sizes))
        spec.mem_offset = sizes[spec.mem_id]
        sizes[spec.mem_id] += spec.allocated_memory + extra_padding
    return sizes


class CalledPass:
    """A pass of the old kind, which is called instead of run."""

    def __call__(self, graph_module: Any) -> PassResult:
        return MemoryPlanningPass().run(graph_module)


def _banked() -> MemoryPlanningPass:
    banks = TargetMemoryMap([Bank("fast", 96, mem_id=1), Bank("slow", 4096, mem_id=4)])
    return banked_memory_planning_pass(banks)


PASSES: dict[str, Callable[[], Any]] = {
    "default": MemoryPlanningPass,
    "shared by position": lambda: MemoryPlanningPass(share_mutable_buffers=True),
    "other alignment": lambda: MemoryPlanningPass(alignment=64),
    "naive": lambda: MemoryPlanningPass(MemoryPlanningAlgorithmSuite([naive])),
    "algorithm": lambda: MemoryPlanningPass(side_by_side),
    "F9 pool": PoolPass,
    "F9 pool, algorithm": lambda: PoolPass(side_by_side),
    "pool of inputs": InputPoolPass,
    "banked": _banked,
    "one for each method": lambda: {name: MemoryPlanningPass() for name in METHODS},
    "F8 one for each, shared by position": lambda: {
        name: MemoryPlanningPass(share_mutable_buffers=True) for name in METHODS
    },
    "one for some methods": lambda: {"step": PoolPass(), "put": _banked()},
    "none": dict,
}
for _inputs, _outputs in itertools.product([True, False], repeat=2):
    PASSES[f"inputs {_inputs}, outputs {_outputs}"] = functools.partial(
        MemoryPlanningPass, alloc_graph_input=_inputs, alloc_graph_output=_outputs
    )
CONFIGS: dict[str, Callable[[], ExecutorchBackendConfig]] = {
    name: functools.partial(lambda make: ExecutorchBackendConfig(memory_planning_pass=make()), make)
    for name, make in PASSES.items()
}
CONFIGS["names"] = lambda: ExecutorchBackendConfig(emit_mutable_buffer_names=True)
CONFIGS["F4 names, initialised by stock"] = lambda: ExecutorchBackendConfig(
    emit_mutable_buffer_names=True,
    passes=[InitializedMutableBufferPass(["shared", "turn", "own"])],
)
CONFIGS["everything on the CPU"] = lambda: ExecutorchBackendConfig(
    enable_non_cpu_memory_planning=False
)
CONFIGS["no views"] = lambda: ExecutorchBackendConfig(remove_view_copy=False)
CONFIGS["external constants"] = lambda: ExecutorchBackendConfig(external_constants=lambda _: None)


@pytest.mark.parametrize("scratch", [(), ("tmp",)], ids=["state", "state and scratch"])
@pytest.mark.parametrize("config", by_fault(CONFIGS))
def test_values(config: Callable[[], ExecutorchBackendConfig], scratch: tuple[str, ...]) -> None:
    program = load_program(_emit(config(), MODEL.buffers, *scratch).buffer)
    for load_order in ("all_first", "lazy"):  # to reload a method restarts its own buffers
        check_calls(MODEL, program.session(), load_order)


@pytest.mark.parametrize("scratch", [(), ("tmp",)], ids=["state", "state and scratch"])
@pytest.mark.parametrize(
    "options",
    [
        dict(zip(("alloc_graph_input", "alloc_graph_output"), each, strict=True))
        for each in itertools.product([True, False], repeat=2)
    ],
    ids=str,
)
def test_own_buffers_without_memory(options: dict[str, bool], scratch: tuple[str, ...]) -> None:
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_mutable_buffers=False, **options)
    )
    with pytest.raises(InternalError, match='Mutable buffer "own" must have a memory id'):
        _emit(config, MODEL.buffers, *scratch)
    program = load_program(_emit(config, ("shared", "turn", "own"), *scratch).buffer)
    check_calls(MODEL, program.session())


def _state_of(value: Any) -> Any:
    """What an object holds, deeply."""
    if isinstance(value, dict):
        return {key: _state_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_state_of(item) for item in value]
    if inspect.isroutine(value) or not hasattr(value, "__dict__") or isinstance(value, type):
        return value
    return type(value), _state_of(vars(value))


@pytest.mark.fault("F7")
@pytest.mark.parametrize("make", PASSES.values(), ids=PASSES.keys())
def test_passes_stay_as_they_are(make: Callable[[], Any]) -> None:
    planning = make()
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    before, before_of_pass = _state_of(config), _state_of(planning)
    first = _emit(config, MODEL.buffers, "tmp").buffer
    assert config.memory_planning_pass is planning
    assert _state_of(config) == before
    assert _state_of(planning) == before_of_pass
    assert _emit(config, MODEL.buffers, "tmp").buffer == first  # F7: once more


def test_a_pass_that_is_called() -> None:
    class Stateless(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x, -1) @ x.t()

    model = Model(Stateless, {"forward": (X,)}, [("forward", (X * 2,))], (), tolerance=1e-6)
    check(model, config=ExecutorchBackendConfig(memory_planning_pass=CalledPass()))


def test_where_tensors_of_pools_lie() -> None:
    config = ExecutorchBackendConfig(memory_planning_pass=PoolPass())
    for scratch in ((), ("tmp",)):
        emitted = _emit(config, MODEL.buffers, *scratch)
        plans = {plan.name: plan for plan in emitted.executorch_program.execution_plan}
        layout = pa.read_layout(emitted.buffer)
        assert plans["step"].non_const_buffer_sizes[3] == 16  # the softmax of 2 x 2
        (state, *rest) = layout.method("step").bindings
        assert state.memory_id == 4
        assert [binding.memory_id for binding in rest] == [5] * len(scratch)


def _names(emitted: pa.ArenaProgramManager, method: str) -> set[str]:
    plans = {plan.name: plan for plan in emitted.executorch_program.execution_plan}
    infos = [getattr(value.val, "extra_tensor_info", None) for value in plans[method].values]
    return {info.fully_qualified_name for info in infos if info is not None}


def test_f4_names_are_those_of_the_module() -> None:
    config = ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    emitted = _emit(config)
    assert _names(emitted, "step") == {"shared", "own"}
    assert _names(emitted, "peek") == {"shared"}
    assert _names(emitted, "plain") == set()

    module = NamedLikeInput()
    for buffers in (["*"], ()):  # in an arena, and each method's own
        exported = pa.export(
            {"forward": pa.EntryPoint(module, (torch.ones(2),))}, [pa.Arena("s", buffers)]
        )
        edge = to_edge_transform_and_lower(exported.programs)
        assert _names(pa.to_executorch(edge, exported.arenas, config), "forward") == {"x"}


class Reinplaced(nn.Module):
    """F23: index_put where the old value, or a view of it, is still needed; also beside state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(4.0))
        self.register_buffer("p", torch.tensor([1]))

    def clone(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t = self.k.clone()
        t.index_put_((self.p,), x)
        return t, self.k * 1

    def view(self, x: Tensor) -> Tensor:
        v = self.k.view(-1)
        self.k.index_put_((self.p,), x)
        return v * 2

    def accumulate(self, x: Tensor) -> Tensor:
        self.k.index_put_((self.p,), x, accumulate=True)
        return self.k * 1

    def local(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t = x.repeat(4) * 2
        v = t.view(2, 2)
        t = t.index_put((self.p,), x)
        return v * 1, t * 2, t.index_put((self.p,), x, accumulate=True)


@pytest.mark.fault("F23")
@pytest.mark.parametrize("in_place", [True, False])
def test_f23_reinplacing(in_place: bool) -> None:
    x = torch.tensor([7.0])
    names = ("clone", "view", "accumulate", "local")
    model = Model(
        Reinplaced,
        dict.fromkeys(names, (x,)),
        repeated(*((name, (x + index,)) for index, name in enumerate(names)), times=2),
        buffers=["k"],
    )
    check(model, config=ExecutorchBackendConfig(run_reinplace_pass=True), in_place=in_place)


def test_slots_that_a_method_does_not_touch() -> None:
    layout = pa.read_layout(_emit(ExecutorchBackendConfig()).buffer)
    (arena,) = layout.arenas
    touched = {
        method.name: [arena.slots[a.slot].fqn for b in method.bindings for a in b.accesses]
        for method in layout.methods
    }
    assert touched == {
        "step": ["shared"],
        "peek": ["shared"],
        "plain": [],
        "choose": ["turn"],
        "put": ["shared", "turn"],
    }
    assert layout.method("plain").bindings == ()


def test_catch_all_holds_what_is_shared() -> None:
    module = Mixed()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in METHODS.items()},
        [pa.Arena("state"), pa.Arena("tmp", lifetime="scratch")],
    )
    held = {each.arena.name: [buffer.name for buffer in each.buffers] for each in exported.arenas}
    assert held == {"state": ["shared", "turn"], "tmp": []}
