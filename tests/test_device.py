"""State on devices, lowered with the device-aware test partitioner of ExecuTorch.

Its backend is not in any runtime, so these tests look at the instructions of what is emitted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.test.device_util import CpuOnlyPartitioner, DeviceAwarePartitioner
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.exir.schema import DelegateCall, KernelCall, Tensor
from torch import nn

import pte_arenas as pa

X = torch.ones(4)
H2D, D2H, DELEGATE = "et_copy::_h2d_copy", "et_copy::_d2h_copy", "delegate"
WAY_OUT = "or declare the arena with device='cpu'"


class Cache(nn.Module):
    """The partitioner delegates additions, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(4.0))

    def put(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.k.copy_(x + y)

    def put_and_return(self, x: torch.Tensor) -> torch.Tensor:
        y = x + x
        self.k.copy_(y)
        return y

    def get(self, x: torch.Tensor) -> torch.Tensor:
        return self.k + x

    def get_view(self, x: torch.Tensor) -> torch.Tensor:
        return self.k.view(2, 2) + x.view(2, 2)

    def update(self, x: torch.Tensor) -> None:
        self.k.add_(x)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return self.k * x

    def put_product(self, x: torch.Tensor) -> None:
        self.k.copy_(x * 3)

    def itself(self) -> torch.Tensor:
        return self.k

    def branch(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, k: x * k, lambda x, k: x - k, (x, self.k))


ARGUMENTS: dict[str, tuple[torch.Tensor, ...]] = {"put": (X, X), "itself": ()}
PARTITIONERS: dict[str, Callable[[], Any]] = {
    "cuda": DeviceAwarePartitioner,
    "cuda:1": functools.partial(DeviceAwarePartitioner, "cuda:1"),
    "cpu": CpuOnlyPartitioner,
}


@functools.cache
def _lowered(
    target: str, device: str, *methods: str
) -> tuple[EdgeProgramManager, tuple[pa.SharedArena, ...]]:
    module = Cache()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), ARGUMENTS.get(name, (X,))) for name in methods},
        [pa.Arena("s", ["k"], device=device)],
    )
    partitioner = [PARTITIONERS[target]()]
    return to_edge_transform_and_lower(exported.programs, partitioner=partitioner), exported.arenas


def _emit(
    *methods: str, target: str = "cuda", device: str = "cuda", **kwargs: Any
) -> pa.ArenaProgramManager:
    return pa.to_executorch(*_lowered(target, device, *methods), **kwargs)


def _instructions(plan: Any, memory_id: int) -> list[tuple[str, list[bool]]]:
    """Name of each instruction, and which of its arguments lie in a memory id."""

    def bound(index: int) -> bool:
        tensor = plan.values[index].val
        return (
            isinstance(tensor, Tensor)
            and tensor.allocation_info is not None
            and tensor.allocation_info.memory_id == memory_id
        )

    found = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        if isinstance(call, KernelCall):
            found.append((plan.operators[call.op_index].name, [bound(i) for i in call.args]))
        elif isinstance(call, DelegateCall):
            found.append((DELEGATE, [bound(i) for i in call.args]))
    return found


@pytest.mark.parametrize(
    ("method", "instructions"),
    [
        pytest.param(
            "get",
            [
                (H2D, [False, False, False]),
                (DELEGATE, [True, False, False]),
                (D2H, [False, False, False]),
            ],
            id="read",
        ),
        pytest.param(
            "get_view",
            [
                (H2D, [False, False, False]),
                (DELEGATE, [True, False, False]),
                (D2H, [False, False, False]),
            ],
            id="read of a view",
        ),
        pytest.param(
            "put",
            [
                (H2D, [False, False, False]),
                (H2D, [False, False, False]),
                (DELEGATE, [False, False, True]),
            ],
            id="write",
        ),
        pytest.param(
            "put_and_return",
            [
                (H2D, [False, False, False]),
                (DELEGATE, [False, True]),
                (D2H, [True, False, False]),
            ],
            id="written value returned",
        ),
    ],
)
@pytest.mark.parametrize("target", ["cuda", "cuda:1"])
def test_delegates_touch_state_where_it_is(
    method: str, instructions: list[tuple[str, list[bool]]], target: str
) -> None:
    emitted = _emit(method, target=target, device=target)
    (plan,) = emitted.executorch_program.execution_plan
    layout = pa.read_layout(emitted.buffer)
    (arena,) = layout.arenas
    (binding,) = layout.method(method).bindings
    index = int(target == "cuda:1")
    assert (arena.device_type, arena.device_index) == ("cuda", index)
    bound = layout.method(method).planned_buffers[binding.memory_id - 1]
    assert (bound.size, bound.device_type, bound.device_index) == (0, "cuda", index)
    assert _instructions(plan, binding.memory_id) == instructions
    tensors = [plan.values[tensor.value].val for tensor in binding.tensors]
    assert {
        (t.extra_tensor_info.device_type.name, t.extra_tensor_info.device_index) for t in tensors
    } == {("CUDA", index)}


@pytest.mark.parametrize(
    ("method", "what"),
    [
        pytest.param(
            "multiply",
            "aten_mul_tensor (aten::mul.out) reads it; lower that to cuda:0 as well",
            id="operator reads",
        ),
        pytest.param(
            "put_product",
            "copy_ (aten::copy_) writes the result of aten_mul_tensor to it; lower that to cuda:0 "
            "as well",
            id="operator writes",
        ),
        pytest.param(
            "update",
            "copy_ (aten::copy_) writes it: the delegate executorch_call_delegate gives its new "
            "value, but not in place; let no delegate read it in or behind the one that gives its "
            "new value",
            id="update in one delegate",
        ),
        pytest.param(
            "itself", "the method returns it; return a value computed from it", id="returned"
        ),
        pytest.param("branch", "cond (cond) reads it; lower that to cuda:0 as well", id="branch"),
    ],
)
def test_other_instructions_are_refused(method: str, what: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        _emit(method)
    assert str(error.value) == (
        f"method {method!r}: expected only delegates of cuda:0 to touch buffer 'k' of arena 's' "
        f"there but found that {what}, {WAY_OUT}"
    )


def test_not_in_place_is_refused() -> None:
    with pytest.raises(pa.ArenaError) as error:
        _emit("put", in_place=False)
    assert str(error.value) == (
        "method 'put': expected only delegates of cuda:0 to touch buffer 'k' of arena 's' there "
        "but found that copy_ (aten::copy_) writes it: the delegate executorch_call_delegate gives "
        "its new value, but not in place; let no delegate read it in or behind the one that gives "
        f"its new value, {WAY_OUT}"
    )


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("cuda:1", "_h2d_copy_default copies it to cuda:1; lower that to cuda:0 as well"),
        (
            "cpu",
            "executorch_call_delegate, a delegate of cpu, reads it; lower that to cuda:0 as well",
        ),
    ],
)
def test_other_delegates_are_refused(target: str, what: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        _emit("get", target=target)
    assert str(error.value) == (
        "method 'get': expected only delegates of cuda:0 to touch buffer 'k' of arena 's' there "
        f"but found that {what}, {WAY_OUT}"
    )


@pytest.mark.parametrize("method", ["get", "get_view", "update"])
def test_copies_of_state_on_the_cpu_are_announced(method: str) -> None:
    with pytest.warns(UserWarning, match="copies the 16 bytes") as found:
        emitted = _emit(method, device="cpu")
    (warning,) = (each for each in found if each.category is UserWarning)
    assert str(warning.message) == (
        f"method {method!r} copies the 16 bytes of buffer 'k' to cuda:0 in every call, since arena "
        f"'s' is on the CPU and a delegate there reads it; declare the arena with device='cuda:0' "
        f"if only delegates of that device touch it"
    )
    assert warning.filename == __file__
    (plan,) = emitted.executorch_program.execution_plan
    layout = pa.read_layout(emitted.buffer)
    (binding,) = layout.method(method).bindings
    (state,) = [args for op, args in _instructions(plan, binding.memory_id) if args[0]]
    assert (H2D, state) in _instructions(plan, binding.memory_id)
    assert layout.arenas[0].device_type == "cpu"


def test_inputs_on_the_device() -> None:
    device_config = PropagateDeviceConfig(
        skip_h2d_for_method_inputs=True, skip_d2h_for_method_outputs=True
    )
    config = ExecutorchBackendConfig(propagate_device_config=device_config)
    for method, arguments in (("get", [True, False, False]), ("put", [False, False, True])):
        (plan,) = _emit(method, config=config).executorch_program.execution_plan
        assert _instructions(plan, 2) == [(DELEGATE, arguments)]
        assert len(plan.non_const_buffer_sizes) == 3
    with pytest.raises(pa.ArenaError) as error:
        _emit("get", device="cpu", config=config)
    assert str(error.value) == (
        "method 'get': expected buffer 'k' of arena 's' on the CPU but found that "
        "skip_h2d_for_method_inputs puts it on cuda:0; declare the arena with device='cuda:0', or "
        "leave that option out"
    )


def test_everything_on_the_cpu() -> None:
    config = ExecutorchBackendConfig(enable_non_cpu_memory_planning=False)
    with pytest.raises(pa.ArenaError) as error:
        _emit("get", config=config)
    assert str(error.value) == (
        "arena 's': expected enable_non_cpu_memory_planning=True for an arena on cuda but found "
        "False, which keeps all memory on the CPU"
    )
    (plan,) = _emit("get", device="cpu", config=config).executorch_program.execution_plan
    assert _instructions(plan, 2) == [(DELEGATE, [True, False, False])]
    assert plan.non_const_buffer_device is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scratch_beside_devices(device: str) -> None:
    edge, arenas = _lowered("cuda", "cuda", "get", "put")
    tmp = pa.SharedArena(pa.Arena("tmp", lifetime="scratch", device=device), ())
    layout = pa.read_layout(pa.to_executorch(edge, [*arenas, tmp]).buffer)
    scratch = layout.arena("tmp")
    if device == "cpu":  # inputs and results only
        assert scratch.size == 0
        return
    assert (scratch.size, scratch.device_type) == (32, "cuda")
    for method in layout.methods:
        sizes = [buffer.size for buffer in method.planned_buffers]
        assert sizes == [{"get": 16, "put": 32}[method.name], 0, 0, 0]
        assert [binding.memory_id for binding in method.bindings] == [3, 4]
        assert [buffer.device_type for buffer in method.planned_buffers] == [
            "cpu",
            "cuda",
            "cuda",
            "cuda",
        ]


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cpu:1", "cuda:128", ""])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.Arena("s", device=device)
    assert str(error.value) == (
        f"arena 's': expected a device such as 'cpu', 'cuda' or 'cuda:1' but found {device!r}"
    )


def test_devices() -> None:
    devices = ["cpu", "cuda", "cuda:0", "cuda:127"]
    place = operator.attrgetter("device_type", "device_index")
    assert [place(pa.Arena("s", device=device)) for device in devices] == [
        ("cpu", 0),
        ("cuda", 0),
        ("cuda", 0),
        ("cuda", 127),
    ]
