"""Data outside of the program, delegates' data, and records: as without arenas."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from against_eager import Model, check_calls, repeated
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools.etrecord import parse_etrecord
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir._serialize._cord import Cord
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.backend.test.backend_with_named_data_map import BackendWithNDMPartitioner
from executorch.exir.schema import TensorDataLocation
from executorch.extension.flat_tensor.serialize.serialize import (
    FlatTensorConfig,
    FlatTensorSerializer,
)
from executorch.runtime import Runtime
from torch import nn
from torch.export.experimental import _export_forward_backward

import pte_arenas as pa
from pte_arenas.runtime import load_program

X = torch.ones(8)
PARTITIONERS = {"portable": None, "xnnpack": [XnnpackPartitioner()]}
ARENAS = (pa.Arena("state", ["k"]), pa.Arena("tmp", lifetime="scratch"))
EXTERNAL: dict[str, Callable[[], bool | Callable[[Any], str | None]]] = {
    "all": lambda: True,
    "some": lambda: lambda node: "weights" if "weight" in node.name else None,
    "several files": lambda: lambda node: "l" if "_l_" in node.name else "rest",
}


class Heavy(nn.Module):
    """Weights, constants (one named like an input), state, and a method without state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(8, 8)
        self.register_buffer("k", torch.arange(8.0))
        self.register_buffer("c", torch.arange(8.0) * 3)
        self.register_buffer("x", torch.full((8,), 9.0))

    def put(self, x: torch.Tensor) -> None:
        self.k.add_(self.l(x) + self.c)

    def get(self, x: torch.Tensor) -> torch.Tensor:
        return self.k + self.l(x) * self.c + self.x

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.l(x)) * self.c


METHODS = dict.fromkeys(("put", "get", "plain"), (X,))
MODEL = Model(
    Heavy, METHODS, repeated(("put", (X,)), ("get", (X * 2,)), ("plain", (X,))), tolerance=1e-4
)


@functools.cache
def _exported(arenas: tuple[pa.Arena, ...] = ARENAS) -> pa.Exported:
    module = Heavy()
    entries = {name: pa.EntryPoint(getattr(module, name), args) for name, args in METHODS.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="buffer 'k' is used by the methods")
        return pa.export(entries, arenas)


@functools.cache
def _lowered(
    backend: str, arenas: tuple[pa.Arena, ...] = ARENAS, **kwargs: Any
) -> EdgeProgramManager:
    partitioner = PARTITIONERS[backend]
    programs = _exported(arenas).programs
    return to_edge_transform_and_lower(programs, partitioner=partitioner, **kwargs)


def _emit(
    backend: str,
    config: ExecutorchBackendConfig,
    arenas: tuple[pa.Arena, ...] = ARENAS,
    **kwargs: Any,
) -> pa.ArenaProgramManager:
    return pa.to_executorch(_lowered(backend, arenas, **kwargs), _exported(arenas).arenas, config)


def _stateless(partitioner: Any = None) -> EdgeProgramManager:
    module = Heavy()

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = module.l
            self.register_buffer("c", module.c)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.l(x)) * self.c

    with torch.no_grad():
        program = torch.export.export(Plain(), (X,))
    return to_edge_transform_and_lower(
        {"plain": program}, partitioner=partitioner, constant_methods={"size": 8, "names": ["a"]}
    )


def _files(manager: Any) -> dict[str, dict[str, bytes]]:
    """By file and name, the data outside of the program."""
    serializer = FlatTensorSerializer(FlatTensorConfig())
    files = {}
    for file, cord in manager._tensor_data.items():
        payload = serializer.deserialize(Cord(bytes(cord)))
        files[file] = {
            name: payload.buffers[entry.buffer_index] for name, entry in payload.named_data.items()
        }
    return files


@pytest.mark.parametrize("external", EXTERNAL.values(), ids=EXTERNAL.keys())
def test_external_constants(external: Callable[[], Any]) -> None:
    config = ExecutorchBackendConfig(external_constants=external())
    emitted = _emit("portable", config)
    module = Heavy()
    constants = {**dict(module.named_parameters()), "c": module.c, "x": module.x}
    found = {name: data for file in _files(emitted).values() for name, data in file.items()}
    wanted = {"l.weight"} if set(_files(emitted)) == {"weights"} else constants.keys()
    assert found == {
        name: constants[name].detach().numpy().tobytes() for name in constants if name in wanted
    }
    for plan in emitted.executorch_program.execution_plan:
        for value in plan.values:
            info = getattr(value.val, "extra_tensor_info", None)
            if info is not None:
                assert info.location is TensorDataLocation.EXTERNAL
                assert info.fully_qualified_name in wanted
    for name in wanted:
        assert constants[name].detach().numpy().tobytes() not in emitted.buffer
    assert module.k.numpy().tobytes() in emitted.buffer  # state stays in the program
    layout = pa.read_layout(emitted.buffer)
    assert [slot.fqn for slot in layout.arena("state").slots] == ["k"]


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]], ids=PARTITIONERS.keys())
@pytest.mark.parametrize("external", [*EXTERNAL.values(), lambda: False], ids=[*EXTERNAL, "none"])
def test_without_arenas_all_bytes_are_those_of_stock(
    external: Callable[[], Any], partitioner: Any, tmp_path: Path
) -> None:
    edge = _stateless(partitioner)
    config = ExecutorchBackendConfig(external_constants=external())
    ours, stock = pa.to_executorch(edge, (), config), edge.to_executorch(config)
    assert ours.buffer == stock.buffer
    assert _files(ours) == _files(stock)
    assert ours.config_methods == stock.config_methods == {"size", "names"}
    for folder, manager in (("ours", ours), ("stock", stock)):
        (tmp_path / folder).mkdir()
        manager.write_tensor_data_to_file(str(tmp_path / folder))
    assert {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "stock").iterdir()
    }


def test_external_constants_load_in_stock(tmp_path: Path) -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    emitted = pa.to_executorch(_stateless(), (), ExecutorchBackendConfig(external_constants=True))
    emitted.save(tmp_path / "plain.pte")
    emitted.write_tensor_data_to_file(str(tmp_path))
    (data,) = tmp_path.glob("*.ptd")
    module = _load_for_executorch(str(tmp_path / "plain.pte"), str(data))
    (result,) = module.run_method("plain", (X,))
    torch.testing.assert_close(result, Heavy().plain(X))


@pytest.mark.parametrize(
    "options",
    [
        {"extract_delegate_segments": False},
        {"extract_delegate_segments": False, "delegate_alignment": 256},
        {"extract_delegate_segments": True, "segment_alignment": 4096},
        {"constant_tensor_alignment": 256},
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", PARTITIONERS)
def test_segments_and_alignments(backend: str, options: dict[str, Any]) -> None:
    emitted = _emit(backend, ExecutorchBackendConfig(**options))
    default = _emit(backend, ExecutorchBackendConfig())
    have, want = deserialize_pte_binary(emitted.buffer), deserialize_pte_binary(default.buffer)
    assert [each.data for each in have.program.backend_delegate_data] == [
        each.data for each in want.program.backend_delegate_data
    ]
    assert len(have.program.backend_delegate_data) == (3 if backend == "xnnpack" else 0)
    assert have.named_data == want.named_data
    check_calls(MODEL, load_program(emitted.buffer).session())


def test_named_data_of_delegates() -> None:
    edges = {
        arenas: to_edge(_exported(arenas).programs).to_backend(BackendWithNDMPartitioner())
        for arenas in (ARENAS, ())
    }
    for config in (ExecutorchBackendConfig(), ExecutorchBackendConfig(external_constants=True)):
        ours, unshared = (
            pa.to_executorch(edge, _exported(arenas).arenas, config)
            for arenas, edge in edges.items()
        )
        have, want = (deserialize_pte_binary(each.buffer).named_data for each in (ours, unshared))
        assert have is not None and want is not None
        assert have.buffers == want.buffers
        assert have.pte_data == want.pte_data and want.pte_data
        assert _files(ours).keys() == _files(unshared).keys()


def test_external_mutable_weights() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(2, 2)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return self.loss(self.linear(x), label)

    arguments = (torch.ones(1, 2), torch.ones(1, dtype=torch.int64))

    def lowered() -> EdgeProgramManager:
        program = torch.export.export(Loss(), arguments, strict=True)
        return to_edge(_export_forward_backward(program))

    config = ExecutorchBackendConfig(external_mutable_weights=True)
    ours = pa.to_executorch(lowered(), (), config)
    stock = lowered().to_executorch(config)
    assert ours.buffer == stock.buffer
    assert _files(ours) == _files(stock)
    assert {name for names in _files(ours).values() for name in names} == {
        "linear.weight",
        "linear.bias",
    }


@pytest.mark.parametrize("backend", PARTITIONERS)
def test_debug_information(backend: str) -> None:
    config = ExecutorchBackendConfig()
    ours = _emit(backend, config)
    unshared = _emit(backend, config, ())
    # A method without state has the same instructions; others lose or gain copies of state.
    for kind in ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map"):
        have, want = getattr(ours, kind), getattr(unshared, kind)
        assert have.keys() == want.keys() == METHODS.keys()
        assert have["plain"] == want["plain"]
    for plan in ours.executorch_program.execution_plan:
        (chain,) = plan.chains
        handles = ours.debug_handle_map[plan.name]
        assert set(handles) <= set(range(len(chain.instructions)))
        assert handles
        assert set(ours.delegate_map[plan.name]) == {
            index
            for index, instruction in enumerate(chain.instructions)
            if type(instruction.instr_args).__name__ == "DelegateCall"
        }
    for verbose in (False, True):
        text = io.StringIO()
        ours.dump_executorch_program(verbose, text)
        assert ("ExecutionPlan(" in text.getvalue()) == verbose
        assert ("XnnpackBackend" in text.getvalue()) == (backend == "xnnpack")


@pytest.mark.parametrize("backend", PARTITIONERS)
def test_etrecord(backend: str, tmp_path: Path) -> None:
    ours = _emit(backend, ExecutorchBackendConfig(), generate_etrecord=True)
    record = ours.get_etrecord()
    assert record._debug_handle_map == ours.debug_handle_map
    assert record._delegate_map == ours.delegate_map
    record.save(tmp_path / "record.bin")
    parsed = parse_etrecord(str(tmp_path / "record.bin"))
    assert parsed.edge_dialect_program.keys() == METHODS.keys()
    assert {
        method: {int(index): handle for index, handle in handles.items()}
        for method, handles in parsed._debug_handle_map.items()
    } == ours.debug_handle_map
    with pytest.raises(RuntimeError, match="ETRecord was not generated"):
        _emit(backend, ExecutorchBackendConfig()).get_etrecord()


def test_constant_methods() -> None:
    emitted = _emit("portable", ExecutorchBackendConfig(), constant_methods=_FROZEN)
    assert emitted.config_methods == {"size", "scale"}
    assert emitted.methods == METHODS.keys()
    session = load_program(emitted.buffer).session()
    assert session.execute("size", ()) == [8]
    assert session.execute("scale", ()) == [0.5]
    layout = pa.read_layout(emitted.buffer)
    assert [method.name for method in layout.methods] == ["get", "plain", "put", "size", "scale"]
    assert set(emitted.memory.methods) == METHODS.keys()
    stock = Runtime.get().load_program(emitted.buffer)
    assert stock.load_method("size").execute([]) == [8]


class _Frozen(dict[str, Any]):
    """A dict that can key a cache."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


_FROZEN = _Frozen(size=8, scale=0.5)
