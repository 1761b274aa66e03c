"""The faults of stock ExecuTorch as programs: a small module each, and what to call.

`bench/faults.py` runs them, and docs/faults.md is made of them: the words are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  # registers operators
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from bench.fault_runs import (
    Case,
    Model,
    keeping_outputs,
    setting_inputs_first,
    with_module,
    with_xnnpack,
)

# --- Configurations of `to_executorch` ---


def sharing() -> ExecutorchBackendConfig:
    planning = MemoryPlanningPass(share_mutable_buffers=True)
    return ExecutorchBackendConfig(memory_planning_pass=planning)


def sharing_for_each(*methods: str) -> Callable[[], ExecutorchBackendConfig]:
    return lambda: ExecutorchBackendConfig(
        memory_planning_pass={
            name: MemoryPlanningPass(share_mutable_buffers=True) for name in methods
        }
    )


def sharing_initialised() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        passes=[InitializedMutableBufferPass(["b_"])],
    )


def initialised() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["b_"])])


def initialised_with_names() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        emit_mutable_buffer_names=True, passes=[InitializedMutableBufferPass(["b_"])]
    )


def reinplacing() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        run_reinplace_pass=True, passes=[InitializedMutableBufferPass(["b_"])]
    )


def sharing_folding() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        do_quant_fusion_and_const_prop=True,
    )


class PoolPass(MemoryPlanningPass):
    """Gives the first result of every method memory id 3, as ExecuTorch's documentation shows."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and "add" in str(node.target):
                node.meta["spec"].mem_id = 3
                break
        return super().run(graph_module, graph_signature)


def sharing_with_a_pool() -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(memory_planning_pass=PoolPass(share_mutable_buffers=True))


# --- Modules ---


class Stateful(nn.Module):
    """Buffers by name."""

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)


class Counter(Stateful):
    """A total, from 5."""

    def __init__(self) -> None:
        super().__init__(total=torch.full((1,), 5.0))

    def add(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 1

    def get(self) -> Tensor:
        return self.total.clone()

    def stateless(self, x: Tensor) -> Tensor:
        return (x * 3 + 100) * 2 - x * x


class Limited(Stateful):
    """A constant, and a total whose initial value is like it."""

    def __init__(self) -> None:
        super().__init__(limit=torch.full((1,), 5.0), total=torch.full((1,), 5.0))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total - self.limit


class Zeros(Counter):
    """A total, from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.total.zero_()


class OfOneMethodEach(Stateful):
    """A buffer for each of two methods, and a method that reads both."""

    def __init__(self) -> None:
        super().__init__(a=torch.zeros(1), b=torch.zeros(1))

    def first(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        return self.a * 1

    def second(self, x: Tensor) -> Tensor:
        self.b.add_(x)
        return self.b * 1

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.a.add_(x)
        self.b.add_(x)
        return self.a * 1, self.b * 1


class Stateless(nn.Module):
    """Two methods that fill their activations."""

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * 2 + 1) * y

    def second(self, x: Tensor, y: Tensor) -> Tensor:
        return (x - y) * (x + 3) + y * 7


class OfParameter(nn.Module):
    """A Parameter that a method changes."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.p.add_(x)
        return self.p * 1


class Weights(Stateful):
    """Weights that methods write."""

    def __init__(self) -> None:
        super().__init__(w=torch.zeros(16, 16), b=torch.zeros(16))

    def write(self, x: Tensor) -> None:
        self.w.add_(x)
        self.b.add_(x)

    def read(self, x: Tensor) -> Tensor:
        return F.linear(x, self.w, self.b)[0, 0]

    def read_and_write(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.w)[0, 0]
        self.w.add_(1.0)
        return y


class TwoConstants(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.ones(1))

    def forward(self) -> Tensor:
        return self.a * 2 + 1


class DelayLine(Stateful):
    def __init__(self) -> None:
        super().__init__(prev=torch.zeros(1), prev2=torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.prev2
        self.prev2.copy_(self.prev)
        self.prev.copy_(x)
        return y


class SameValue(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.zeros(1), c=torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        self.c.copy_(self.a)
        return self.c * 1


class ReturnsState(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        return self.a.clone()


class StillNeeded(Stateful):
    def __init__(self) -> None:
        super().__init__(k=torch.arange(4.0), p=torch.tensor([1]))

    def forward(self, x: Tensor) -> Tensor:
        view = self.k.view(-1)
        self.k.index_put_((self.p,), x)
        return view * 2


class NamedLikeInput(Stateful):
    def __init__(self) -> None:
        super().__init__(x=torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.x.add_(x)
        return self.x * 1


class Broadcasts(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.zeros(2, 2), n=torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.a.copy_(x)
        self.n.copy_(y)
        return self.a * 1, self.n * 1


class Branch(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.ones(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(
            x.sum() > 0,
            lambda x, a: (a.view(2, 1) * 2).sum(1),
            lambda x, a: x - a[0],
            (x, self.a),
        )
        self.a.add_(1.0)
        return y


class MutatingOperator(Stateful):
    def __init__(self) -> None:
        super().__init__(k=torch.zeros(1, 4, 2, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        view = self.k.view(8, 8)
        before = view.sum()
        torch.ops.llama.update_cache(x, self.k, 1)
        return before, view.sum()


class Folded(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.ones(1))

    def put(self, x: Tensor) -> None:
        self.a.copy_(x)

    def get(self, x: Tensor) -> Tensor:
        return self.a * 3 + x


class TwoInputs(Stateful):
    def __init__(self) -> None:
        super().__init__(a=torch.zeros(1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.a.add_(x - 10 * y)
        return self.a * 1


class ChangesInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1.0)
        return x * 10


class CountsCalls(Stateful):
    def __init__(self) -> None:
        super().__init__(count=torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1.0)
        return x * self.count


class OneOf(Stateful):
    """A module with a buffer `state` of some size; another module has one, too."""

    def __init__(self, size: int) -> None:
        super().__init__(state=torch.zeros(size))

    def write(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return self.state * 1

    def read(self, x: Tensor) -> Tensor:
        self.state.mul_(x)
        return self.state * 1


class Tied(Stateful):
    def __init__(self) -> None:
        one = torch.zeros(2)
        super().__init__(a=one, b=one, c=one[1:])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.a.add_(x)
        return self.b * 1, self.c * 1


class ChannelsLast(Stateful):
    def __init__(self) -> None:
        super().__init__(image=torch.zeros_like(IMAGE))

    def forward(self, x: Tensor) -> Tensor:
        self.image.add_(x)
        return (self.image * 2).sum()


class PythonState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n


def calibrated(model: Model) -> Model:
    """PT2E: prepared, run once to calibrate, converted. Nothing is quantised but all is run."""
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(model, (ONE,)).module(), XNNPACKQuantizer())
        prepared(ONE)
        return convert_pt2e(prepared)


def calibrated_and_set_back(model: Model) -> Model:
    converted = calibrated(model)
    converted.count.zero_()
    return converted


# --- Cases ---


def number(value: float) -> Tensor:
    return torch.tensor([value])


def two_numbers() -> tuple[Tensor, Tensor]:
    """Of their own: F30."""
    return number(1.0), number(1.0)


ONE = number(1.0)
ROW = torch.ones(1, 16)
IMAGE = torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last)
ADD = ("add", (ONE,))
GET = ("get", ())
COUNTER = {"add": (ONE,), "get": ()}
FORWARD = {"forward": (ONE,)}
THRICE = [("forward", (ONE,))] * 3

_CASES = [
    Case(
        "F1",
        "a method with state and one without, default export; run both in turn: `add(1)` twice, "
        "`stateless(100)`, `add(1)`",
        Zeros,
        {"add": (ONE,), "stateless": (ONE,)},
        [ADD, ADD, ("stateless", (number(100.0),)), ADD],
        why="activations overwrite state",
    ),
    Case(
        "F2",
        "`share_mutable_buffers=True`; a buffer starts at 5 and is read first",
        Counter,
        COUNTER,
        [GET, ADD],
        shown=2,
        config=sharing,
        why="initial values are lost",
    ),
    Case(
        "F3",
        "the same with `InitializedMutableBufferPass`; 1 is added twice, then the reader is loaded",
        Counter,
        COUNTER,
        [ADD, ADD, GET],
        config=sharing_initialised,
        why="every load writes the initial value again",
    ),
    Case(
        "F4",
        "`emit_mutable_buffer_names` with that pass, not shared, where a constant has the bytes "
        "of the initial value",
        Limited,
        FORWARD,
        THRICE,
        shown=3,
        config=initialised_with_names,
    ),
    Case(
        "F5",
        "not shared; a method that only reads the buffer, after 1 was added twice",
        Counter,
        COUNTER,
        [ADD, ADD, GET],
        config=initialised,
        why="a constant copy",
    ),
    Case(
        "F6",
        "a shared export in the Python binding that is like `Module`; 1 is added twice, then read",
        Zeros,
        COUNTER,
        [ADD, ADD, GET],
        config=sharing,
        run=with_module,
        why="never shares",
    ),
    Case(
        "F7",
        "one `MemoryPlanningPass(share_mutable_buffers=True)` for two programs",
        Zeros,
        COUNTER,
        [ADD, GET],
        config=sharing,
        programs=2,
    ),
    Case(
        "F8",
        "a dict of such passes, one for each method: `both(10)`, `second(1)`, which has one of the "
        "two buffers, `both(1)`",
        OfOneMethodEach,
        {"both": (ONE,), "second": (ONE,)},
        [("both", (number(10.0),)), ("second", (ONE,)), ("both", (ONE,))],
        config=sharing_for_each("both", "second"),
        why="wrong aliasing",
    ),
    Case(
        "F9",
        "a custom pool pass together with sharing",
        Zeros,
        COUNTER,
        [ADD, GET],
        config=sharing_with_a_pool,
    ),
    Case(
        "F10",
        "outputs are kept, not copied, while another method runs; the first one is looked at then",
        Stateless,
        {"first": two_numbers(), "second": two_numbers()},
        [("first", (ONE, ONE)), ("second", (number(5.0), ONE))],
        shown=2,
        run=keeping_outputs,
        why="overwritten",
        buffers=(),
    ),
    Case(
        "F11",
        "inputs of one method are set, another runs, the first executes; ours has no such call",
        Stateless,
        {"first": two_numbers(), "second": two_numbers()},
        [("second", (number(5.0), ONE)), ("first", (ONE, ONE))],
        run=setting_inputs_first,
        why="the inputs are overwritten",
        buffers=(),
    ),
    Case(
        "F14",
        "a method changes a Parameter; 1 is added three times",
        OfParameter,
        FORWARD,
        THRICE,
        shown=3,
        refused=True,
        why="the change is lost; one more output",
        buffers=(),
    ),
    Case(
        "F17",
        "two methods with a buffer each, which nothing declares as shared: `first(1)`, "
        "`second(10)`, `first(1)`",
        OfOneMethodEach,
        {"first": (ONE,), "second": (ONE,)},
        [("first", (ONE,)), ("second", (number(10.0),)), ("first", (ONE,))],
        shown=3,
        why="memory is shared that must not be",
        buffers=(),
    ),
    Case(
        "F18",
        "one method writes weights, another multiplies with them, XNNPACK",
        Weights,
        {"write": (ONE,), "read": (ROW,)},
        [("write", (ONE,)), ("write", (ONE,)), ("read", (ROW,))],
        lower=with_xnnpack,
        config=sharing,
        why="the delegate holds the initial weights",
    ),
    Case(
        "F19",
        "a method without arguments that has two scalar constants",
        TwoConstants,
        {"forward": ()},
        [("forward", ())],
    ),
    Case(
        "F20",
        "a buffer takes over another buffer's old value, through `to_edge`: a delay of two steps "
        "gets 0, 1, 2, 3, 4",
        DelayLine,
        FORWARD,
        [("forward", (number(float(step)),)) for step in range(5)],
        shown=5,
        lower=to_edge,
        why="the write is dropped",
    ),
    Case(
        "F21",
        "two buffers get the same new value; 1 is added three times",
        SameValue,
        FORWARD,
        THRICE,
        shown=3,
    ),
    Case(
        "F22",
        "updated state is returned, XNNPACK; 1 is added three times",
        ReturnsState,
        FORWARD,
        THRICE,
        shown=3,
        lower=with_xnnpack,
    ),
    Case(
        "F23",
        "`run_reinplace_pass=True` where a view of the value is still needed",
        StillNeeded,
        FORWARD,
        [("forward", (number(7.0),))],
        config=reinplacing,
        why="wrong values",
    ),
    Case(
        "F24",
        "a buffer named like an input; 1 is added three times",
        NamedLikeInput,
        FORWARD,
        THRICE,
        shown=3,
        why="the write goes to the input",
    ),
    Case(
        "F25",
        "writes that broadcast or cast, read in the same call: 3 and 4 into two rows, 1.5 into "
        "an integer",
        Broadcasts,
        {"forward": (torch.ones(2), ONE)},
        [("forward", (torch.tensor([3.0, 4.0]), number(1.5)))],
        why="wrong shape and dtype",
    ),
    Case(
        "F26",
        "state that is a weight in the method that writes it, XNNPACK",
        Weights,
        {"read_and_write": (ROW,)},
        [("read_and_write", (ROW,))] * 3,
        shown=3,
        lower=with_xnnpack,
        why="the delegate holds the initial weight",
    ),
    Case(
        "F27",
        "a view of state inside a branch of `torch.cond`",
        Branch,
        {"forward": (torch.ones(2),)},
        [("forward", (torch.ones(2),))] * 2,
        shown=2,
        config=initialised,
        why="wrong values",
    ),
    Case(
        "F28",
        "an operator that mutates state between two reads, XNNPACK",
        MutatingOperator,
        {"forward": (torch.ones(1, 1, 2, 8),)},
        [("forward", (torch.ones(1, 1, 2, 8),))],
        lower=with_xnnpack,
        why="the first read sees the new value",
    ),
    Case(
        "F29",
        "`do_quant_fusion_and_const_prop=True` with sharing, state that another method writes",
        Folded,
        {"put": (ONE,), "get": (ONE,)},
        [("put", (number(5.0),)), ("get", (ONE,))],
        config=sharing_folding,
        why="the initial value is folded in",
    ),
    Case(
        "F30",
        "one tensor is given as two example inputs, or a buffer as an input",
        TwoInputs,
        {"forward": (ONE, ONE)},
        [("forward", (number(7.0), ONE))],
        why="one input",
    ),
    Case(
        "F31",
        "a method changes its input",
        ChangesInput,
        FORWARD,
        [("forward", (ONE,))],
        shows_inputs=True,
        why="one more output; the caller's tensor stays",
        buffers=(),
    ),
    Case(
        "F32",
        "PT2E calibration of an exported module that counts its calls; here its buffer is set "
        "to 0 before `pa.export`",
        CountsCalls,
        FORWARD,
        [("forward", (ONE,))],
        config=initialised,
        prepare=calibrated,
        prepare_ours=calibrated_and_set_back,
        why="the initial value is that of calibration",
    ),
    Case(
        "F33",
        "one name, two modules, other sizes or values: 1 is added to a buffer, then the other "
        "module's is read",
        lambda: {"write": OneOf(1), "read": OneOf(2)},
        {"write": (ONE,), "read": (ONE,)},
        [("write", (ONE,)), ("read", (ONE,))],
        refused=True,
        config=sharing,
        why="one slot, sized by either",
    ),
    Case(
        "F34",
        "tied buffers, views of buffers, a submodule under two names",
        Tied,
        FORWARD,
        [("forward", (ONE,))],
    ),
    Case(
        "F35",
        "channels-last or strided state",
        ChannelsLast,
        {"forward": (IMAGE,)},
        [("forward", (IMAGE,))],
    ),
    Case(
        "F36",
        "state in Python attributes, or made inside the method: an int counts three calls",
        PythonState,
        FORWARD,
        THRICE,
        shown=3,
        refused=True,
        why="frozen",
        buffers=(),
    ),
]

CASES: Mapping[str, Case] = {case.fault: case for case in _CASES}
