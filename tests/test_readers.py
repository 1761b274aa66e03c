"""Readers of state see live state, whatever lowering and delegates take for constant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_eager import Model, check_calls, emit, repeated
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  # registers operators
from faults import by_fault
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import pte_arenas as pa
from pte_arenas.runtime import load_program

ONE = torch.ones(1)
ROW = torch.ones(1, 16)
TWO_ROWS = torch.linspace(-1.0, 1.0, 8).view(2, 4)
IMAGE = torch.linspace(-1.0, 1.0, 50).view(1, 2, 5, 5)
SEQUENCE = torch.linspace(-1.0, 1.0, 15).view(5, 3)


class WeightsOfAnotherMethod(nn.Module):
    """F18: one method writes what another uses as weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.zeros(16, 16))
        self.register_buffer("b", torch.zeros(16))

    def write(self, x: Tensor) -> None:
        self.w.add_(x)
        self.b.add_(x)

    def read(self, x: Tensor) -> Tensor:
        return F.linear(x, self.w, self.b)


class OwnWeights(nn.Module):
    """F26: a method writes what it uses as weights or statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.eye(4))
        self.register_buffer("kernel", torch.ones(3, 2, 3, 3))
        self.register_buffer("slope", torch.full((1,), 0.25))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def linear(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.w)
        self.w.add_(1.0)
        return y

    def matmul(self, x: Tensor) -> Tensor:
        y = x @ self.w
        self.w.mul_(0.5)
        return y

    def conv(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.kernel)
        self.kernel.add_(1.0)
        return y

    def prelu(self, x: Tensor) -> Tensor:
        y = F.prelu(x, self.slope)
        self.slope.mul_(2.0)
        return y

    def batch_norm(self, x: Tensor) -> Tensor:
        y = F.batch_norm(x, self.mean, self.variance)
        self.mean.add_(0.5)
        self.variance.mul_(1.5)
        return y

    def online_sgd(self, x: Tensor) -> Tensor:
        y = x @ self.w
        self.w.sub_(x.t() @ (y - x) * 0.1)
        return y


class Branches(nn.Module):
    """F27: a view of state inside a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(
            x.sum() > 0,
            lambda x, a: (a.view(2, 1) * 2).sum(1),
            lambda x, a: x - a,
            (x, self.a),
        )
        self.a.add_(1.0)
        return y


class LiveResults(nn.Module):
    """Results of branches that are needed after other branches ran, also inside a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))

    def two(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cond(x.sum() > 0, lambda x, a: x + a, lambda x, a: x - a, (x, self.a))
        z = torch.cond(x.sum() > 1, lambda x, a: x * a, lambda x, a: x / 2 + a, (x, self.a))
        self.a.copy_(y)
        return y, y + z

    def inner(self, x: Tensor) -> Tensor:
        def branch(x: Tensor, a: Tensor) -> Tensor:
            y = torch.cond(x.sum() > 1, lambda x, a: x + a, lambda x, a: x - a, (x, a))
            z = torch.cond(x.sum() > 3, lambda x, a: x * a, lambda x, a: x / 2, (x, a))
            return y * 2 + z

        y = torch.cond(x.sum() > 0, branch, lambda x, a: a * 3, (x, self.a))
        self.a.sub_(1.0)
        return y

    def fed(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x, a: x + a, lambda x, a: x - a, (x, self.a))
        return torch.cond(
            x.sum() > 1,
            lambda x, y: ((x + 1) * (x + 2)).relu() + y,
            lambda x, y: ((x - 1) * x).abs() * y,
            (x, y),
        )


class Scanned(nn.Module):
    """State as the carry and as a constant of a scan, and inside a map."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(3))
        self.register_buffer("w", torch.eye(3) * 0.5)

    def scan(self, xs: Tensor) -> Tensor:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = torch.tanh(carry @ self.w + x)
            return new, new * 2

        carry, ys = _scan(step, self.h, xs)
        self.h.copy_(carry)
        return ys

    def map(self, xs: Tensor) -> Tensor:
        y = _map(lambda x, h: x + h, xs, self.h)
        self.h.mul_(0.5)
        return y

    def decay(self) -> None:
        self.w.mul_(0.5)


class MutatingOperator(nn.Module):
    """F28: an operator that mutates the state, between two reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 4, 2, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        view = self.k.view(8, 8)
        before = view.sum()
        torch.ops.llama.update_cache(x, self.k, 1)
        return before, view.sum()


class Folded(nn.Module):
    """F29: constant folding meets state that another method writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(2))

    def put(self, x: Tensor) -> None:
        self.a.copy_(x)

    def get(self, x: Tensor) -> Tensor:
        return self.a * 3 + x


def _scan(step: object, init: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
    from torch._higher_order_ops.scan import scan

    return scan(step, init, xs)


def _map(function: object, xs: Tensor, h: Tensor) -> Tensor:
    from torch._higher_order_ops.map import map as mapped

    return mapped(function, xs, h)


OWN = ("linear", "matmul", "prelu", "batch_norm", "online_sgd")
MODELS = {
    "F18": Model(
        WeightsOfAnotherMethod,
        {"write": (ONE,), "read": (ROW,)},
        repeated(("write", (ONE,)), ("read", (ROW,))),
        tolerance=1e-5,
    ),
    "F26": Model(
        OwnWeights,
        {**dict.fromkeys(OWN, (TWO_ROWS,)), "conv": (IMAGE,)},
        repeated(*((name, (TWO_ROWS,)) for name in OWN), ("conv", (IMAGE,))),
        tolerance=1e-4,
    ),
    "F27": Model(
        Branches,
        {"forward": (torch.ones(2),)},
        repeated(("forward", (torch.ones(2),)), ("forward", (-torch.ones(2),))),
    ),
    "live results": Model(
        LiveResults,
        dict.fromkeys(("two", "inner", "fed"), (torch.ones(2),)),
        repeated(
            *(
                (name, (torch.full((2,), value),))
                for value in (1.0, -1.0, 0.4, 2.0)
                for name in ("two", "inner", "fed")
            )
        ),
    ),
    "scan and map": Model(
        Scanned,
        {"scan": (SEQUENCE,), "map": (SEQUENCE,), "decay": ()},
        repeated(("scan", (SEQUENCE,)), ("map", (SEQUENCE,)), ("decay", ())),
        tolerance=1e-5,
    ),
    "F28": Model(
        MutatingOperator,
        {"forward": (torch.ones(1, 1, 2, 8),)},
        repeated(("forward", (torch.ones(1, 1, 2, 8),))),
    ),
}


@pytest.mark.parametrize("partitioner", ["portable", "xnnpack"])
@pytest.mark.parametrize("model", by_fault(MODELS))
def test_readers_see_live_state(model: Model, partitioner: str) -> None:
    emitted = emit(model, [XnnpackPartitioner()] if partitioner == "xnnpack" else [])
    check_calls(model, load_program(emitted.buffer).session())


def test_delegates_still_take_what_they_can() -> None:
    emitted = emit(MODELS["F26"], [XnnpackPartitioner()])
    delegates = {plan.name for plan in emitted.executorch_program.execution_plan if plan.delegates}
    assert {"linear", "matmul", "online_sgd"} <= delegates


@pytest.mark.fault("F29")
@pytest.mark.parametrize("partitioner", ["portable", "xnnpack"])
def test_f29_folding_keeps_state_live(partitioner: str) -> None:
    x = torch.ones(2)
    model = Model(
        Folded,
        {"put": (x,), "get": (x,)},
        repeated(("get", (x,)), ("put", (x * 5,)), ("get", (x,))),
        tolerance=1e-6,
    )
    config = ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True)
    partitioners = [XnnpackPartitioner()] if partitioner == "xnnpack" else []
    check_calls(model, load_program(emit(model, partitioners, config=config).buffer).session())


@pytest.mark.fault("F32")
def test_quantised_methods_share_state() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(4, 4)
            self.register_buffer("h", torch.zeros(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.linear(x + self.h))
            self.h.copy_(y * 0.5)
            return y

    quantizer = XNNPACKQuantizer()
    quantizer.set_global(get_symmetric_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(Net(), (TWO_ROWS,)).module(), quantizer)
        prepared(TWO_ROWS)
        converted = convert_pt2e(prepared)
        # F32: calibration has run the module, so its state is not the initial one.
        assert converted.h.any()
        converted.h.zero_()
        exported = pa.export(
            {"forward": pa.EntryPoint(converted, (TWO_ROWS,))}, [pa.Arena("state", ["h"])]
        )
        edge = to_edge_transform_and_lower(exported.programs, partitioner=[XnnpackPartitioner()])
        session = load_program(pa.to_executorch(edge, exported.arenas).buffer).session()
        for _ in range(3):
            (have,) = session.execute("forward", (TWO_ROWS,))
            torch.testing.assert_close(have, converted(TWO_ROWS), rtol=1e-5, atol=1e-5)
