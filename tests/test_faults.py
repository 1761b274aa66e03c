"""Faults of stock sharing and of stock lowering: here each gives what eager PyTorch gives.

The numbers F1, F2, … are those of RFC.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_eager import LOAD_ORDERS, Model, check, check_calls, emit, repeated
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from faults import by_fault
from stateful_models import (
    BroadcastWrites,
    Counter,
    DelayLine,
    NamedLikeInput,
    ReturnsState,
    SameValue,
    Strided,
    Tied,
    TwoConstants,
    TwoInputs,
)

import pte_arenas as pa
from pte_arenas.runtime import load_program

X = torch.tensor([1.0, 2.0])
ONES = torch.ones(2, 2)
IMAGE = torch.arange(24.0).view(1, 2, 3, 4)
COUNTER = {"forward": (ONES,), "get": (), "reset": ()}
BROADCASTS = ("broadcast", "cast", "fill", "assign", "assign_row", "fill_int")


def _channels_last(image: torch.Tensor) -> torch.Tensor:
    return image.to(memory_format=torch.channels_last)


FAULTS = {
    "F2 initial value": Model(
        Counter, COUNTER, [("get", ()), ("forward", (ONES,)), ("reset", ()), ("get", ())]
    ),
    "F3 load after mutation": Model(
        Counter, COUNTER, [("forward", (ONES,)), ("forward", (ONES,)), ("get", ())]
    ),
    "F5 reader": Model(Counter, COUNTER, repeated(("get", ()), ("forward", (ONES,)))),
    "F19 no arguments, two constants": Model(
        TwoConstants,
        {"get": (), "softly": (), "add": (torch.ones(3),)},
        repeated(("get", ()), ("softly", ()), ("add", (torch.ones(3),))),
        tolerance=1e-6,
    ),
    "F20 delay line": Model(
        DelayLine,
        {"forward": (torch.ones(1),)},
        [("forward", (torch.tensor([float(step)]),)) for step in range(5)],
    ),
    "F20 swap": Model(
        DelayLine,
        {"forward": (X[:1],), "swap": (), "reshape_swap": (), "old": (X[:1],)},
        repeated(
            ("forward", (X[:1],)),
            ("swap", ()),
            ("old", (X[1:],)),
            ("reshape_swap", ()),
            ("old", (X[:1],)),
        ),
    ),
    "F21 one value for two buffers": Model(
        SameValue,
        {"added": (X,), "input_twice": (X,), "returned": (X,), "get": ()},
        repeated(
            ("added", (X,)),
            ("get", ()),
            ("input_twice", (X * 3,)),
            ("get", ()),
            ("returned", (X * 0.5,)),
            ("get", ()),
        ),
    ),
    "F22 new state returned": Model(
        ReturnsState,
        {"forward": (ONES,), "itself": (ONES,)},
        repeated(("forward", (ONES,)), ("itself", (ONES * 3,))),
    ),
    "F24 buffers named like inputs": Model(
        NamedLikeInput,
        {"forward": (X,), "nested": ((X, X),), "branch": (X,)},
        repeated(("forward", (X,)), ("nested", ((X, X * 2),)), ("branch", (X,)), ("branch", (-X,))),
    ),
    "F25 broadcasting and casting writes": Model(
        BroadcastWrites,
        dict.fromkeys(BROADCASTS, (X,)),
        repeated(*((name, (X * 1.7,)) for name in BROADCASTS)),
    ),
    "F30 one example tensor twice": Model(
        TwoInputs,
        {"forward": (X, X)},
        [("forward", (X, X * 5)), ("forward", (X * 7, X))],
    ),
    "F34 tied state": Model(
        Tied,
        {"forward": (torch.ones(6),), "window": (ONES,), "get": ()},
        repeated(("forward", (torch.arange(6.0),)), ("window", (ONES * 2,)), ("get", ())),
    ),
    "F35 strided state and inputs": Model(
        Strided,
        {"forward": (_channels_last(IMAGE),), "turn": (torch.ones(2, 3).t(),), "step": ()},
        repeated(
            ("forward", (_channels_last(IMAGE),)),
            ("turn", (torch.arange(6.0).view(2, 3).t(),)),
            ("step", ()),
        ),
    ),
    "F35 strided state": Model(
        Strided,
        {"forward": (IMAGE,), "turn": (torch.ones(3, 2),), "step": ()},
        repeated(("forward", (IMAGE,)), ("turn", (torch.arange(6.0).view(3, 2),)), ("step", ())),
    ),
}


@pytest.mark.parametrize("partitioner", ["portable", "xnnpack"])
@pytest.mark.parametrize("model", by_fault(FAULTS))
def test_program_does_what_eager_does(model: Model, partitioner: str) -> None:
    check(model, partitioner=[XnnpackPartitioner()] if partitioner == "xnnpack" else ())


@pytest.mark.fault("F24")
def test_f24_keyword_named_like_a_buffer() -> None:
    module, eager = NamedLikeInput(), NamedLikeInput()
    exported = pa.export(
        {"keyword": pa.EntryPoint(module.keyword, kwargs={"y": X})}, [pa.Arena("s", ["*"])]
    )
    session = _session(exported)
    for step in range(3):
        (have,) = session.execute("keyword", (X * step,))
        torch.testing.assert_close(have, eager.keyword(y=X * step), rtol=0, atol=0)


@pytest.mark.fault("F30")
def test_f30_example_is_the_buffer_itself() -> None:
    module, eager = TwoInputs(), TwoInputs()
    exported = pa.export(
        {"forward": pa.EntryPoint(module, (module.a, module.a))}, [pa.Arena("s", ["a"])]
    )
    session = _session(exported)
    for step in range(3):
        (have,) = session.execute("forward", (X * step, X))
        torch.testing.assert_close(have, eager(X * step, X), rtol=0, atol=0)
    assert torch.equal(module.a, torch.zeros(2))


@pytest.mark.fault("F6")
@pytest.mark.parametrize("load_order", LOAD_ORDERS)
def test_f6_python_shares(load_order: str) -> None:
    model = Model(Counter, COUNTER, repeated(("forward", (ONES,)), ("get", ())))
    program = load_program(emit(model).buffer)
    check_calls(model, program.session(), load_order)
    for name, args in model.methods.items():  # the face of executorch.runtime
        program.load_method(name).execute(args)


@pytest.mark.fault("F7")
def test_f7_one_pass_for_several_programs() -> None:
    shared = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=shared)
    model = Model(Counter, COUNTER, repeated(("forward", (ONES,)), ("get", ())))
    for _ in range(2):
        program = load_program(emit(model, config=config).buffer)
        check_calls(model, program.session())
    assert shared.state.graph_modules == []
    assert shared.share_mutable_buffers


@pytest.mark.fault("F3")
def test_f3_stock_init_pass_changes_nothing() -> None:
    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["state"])])
    model = Model(Counter, COUNTER, [("forward", (ONES,)), ("forward", (ONES,)), ("get", ())])
    program = load_program(emit(model, config=config).buffer)
    check_calls(model, program.session(), "reload")


@pytest.mark.fault("F1")
def test_f1_stock_file_has_private_memory() -> None:
    class Stateless(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ x.t()) @ x + x

    class Stateful(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a.add_(x)
            return self.a * 1

    programs = {
        "stateful": torch.export.export(Stateful(), (ONES,)),
        "stateless": torch.export.export(Stateless(), (ONES,)),
    }
    with pytest.warns(UserWarning, match="Mutation on a buffer"):
        stock = to_edge_transform_and_lower(programs).to_executorch()
    session = load_program(stock.buffer).session()
    for _ in range(2):
        session.execute("stateful", (ONES,))
    session.execute("stateless", (ONES * 3,))
    (third,) = session.execute("stateful", (ONES,))
    assert torch.equal(third, ONES * 3)


def test_stock_runtime_refuses_a_program_with_arenas(capfd: pytest.CaptureFixture[str]) -> None:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(emit(Model(Counter, COUNTER, [])).buffer)
    with pytest.raises(RuntimeError, match="Failed to load method get, error: 0x:21"):
        program.load_method("get")
    assert "offset_bytes (0) + size_bytes (16) >= allocator size (0)" in capfd.readouterr().err


def _session(exported: pa.Exported, **kwargs: Any) -> Any:
    edge = to_edge_transform_and_lower(exported.programs)
    return load_program(pa.to_executorch(edge, exported.arenas, **kwargs).buffer).session()
