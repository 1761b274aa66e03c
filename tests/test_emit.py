"""The bytes of emitted files."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from against_eager import Model, emit
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.lowered_backend_module import LoweredBackendModule
from stateful_models import Counter
from torch import Tensor, nn

import pte_arenas as pa

ONES = torch.ones(2, 2)
COUNTER = Model(Counter, {"forward": (ONES,), "get": (), "reset": ()}, [])

HASH_OF_A_FRESH_EXPORT = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
from test_emit import COUNTER, Heavy, HEAVY
from against_eager import emit
for model in (COUNTER, HEAVY):
    print(hashlib.sha256(emit(model).buffer).hexdigest())
"""


class Heavy(nn.Module):
    """Two methods over the same weights and state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64)
        self.register_buffer("mean", torch.full((64,), 0.5))
        self.register_buffer("last", torch.zeros(64))
        self.register_buffer("own", torch.full((64,), 2.0))

    def one(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.mean.lerp_(y[0], 0.1)
        return y + self.mean

    def two(self, x: Tensor) -> Tensor:
        self.last.copy_(self.mean)
        self.own.add_(x[0])
        return self.linear(x) - self.last + self.own


HEAVY = Model(
    Heavy,
    {"one": (torch.ones(2, 64),), "two": (torch.ones(2, 64),)},
    [],
    buffers=["mean", "last"],
)


@pytest.mark.slow
def test_two_processes_write_the_same_bytes() -> None:
    folder = str(Path(__file__).parent)
    seeds = ("0", "1")
    hashes = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", HASH_OF_A_FRESH_EXPORT, folder],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout.split()
        for seed in seeds
    ]
    assert hashes[0] == hashes[1]
    assert hashes[0][0] == hashlib.sha256(emit(COUNTER).buffer).hexdigest()


@pytest.mark.parametrize("partitioner", ["portable", "xnnpack"])
def test_weights_and_delegates_come_through(partitioner: str) -> None:
    module = Heavy()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in HEAVY.methods.items()},
        [pa.Arena("state", HEAVY.buffers)],
    )
    partitioners = [XnnpackPartitioner()] if partitioner == "xnnpack" else None
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioners)
    data = pa.to_executorch(edge, exported.arenas).buffer
    for weights in (module.linear.weight, module.linear.bias):
        assert data.count(weights.detach().numpy().tobytes()) == 1
    lowered = {
        child.processed_bytes
        for name in edge.methods
        for child in edge.exported_program(name).graph_module.modules()
        if isinstance(child, LoweredBackendModule)
    }
    assert bool(lowered) == (partitioner == "xnnpack")
    stored = deserialize_pte_binary(data).program.backend_delegate_data
    assert {delegate.data for delegate in stored} == lowered


def test_initial_values_are_stored_once() -> None:
    module = Heavy()
    data = emit(HEAVY).buffer
    assert data.count(module.mean.numpy().tobytes()) == 1
    assert data.count(module.own.numpy().tobytes()) == 1


def test_layout_of_the_file() -> None:
    layout = pa.read_layout(emit(HEAVY).buffer)
    (arena,) = layout.arenas
    assert [(slot.fqn, slot.offset, slot.nbytes) for slot in arena.slots] == [
        ("mean", 0, 256),
        ("last", 256, 256),
    ]
    assert arena.size == 512
    accesses = {
        method.name: [(arena.slots[a.slot].fqn, a.mode) for a in method.bindings[0].accesses]
        for method in layout.methods
    }
    assert accesses == {
        "one": [("mean", "read_write")],
        "two": [("mean", "read"), ("last", "write")],
    }


def test_emitting_leaves_the_edge_programs_as_they_are() -> None:
    module = Counter()
    exported = pa.export({"get": module.get, "reset": module.reset}, [pa.Arena("state", ["*"])])
    edge = to_edge_transform_and_lower(exported.programs)
    graphs = {name: str(edge.exported_program(name).graph) for name in edge.methods}
    first = pa.to_executorch(edge, exported.arenas).buffer
    assert {name: str(edge.exported_program(name).graph) for name in edge.methods} == graphs
    assert pa.to_executorch(edge, exported.arenas).buffer == first


def test_save(tmp_path: Path) -> None:
    emitted = emit(COUNTER)
    path = tmp_path / "counter.pte"
    path.write_bytes(b"old")
    emitted.save(path)
    assert path.read_bytes() == emitted.buffer
    stream = io.BytesIO()
    emitted.write_to_file(stream)
    assert stream.getvalue() == emitted.buffer
    assert [file.name for file in tmp_path.iterdir()] == ["counter.pte"]
    with pytest.raises(pa.ArenaError, match=r"^expected a path that ends with \.pte but found"):
        emitted.save(tmp_path / "counter.bin")
    with pytest.raises(FileNotFoundError):
        emitted.save(tmp_path / "missing" / "counter.pte")


def test_methods_without_arenas_are_as_before() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 + 1

    exported = pa.export({"forward": pa.EntryPoint(Plain(), (ONES,))})
    stock = to_edge_transform_and_lower({"forward": torch.export.export(Plain(), (ONES,))})
    ours = pa.to_executorch(to_edge_transform_and_lower(exported.programs), exported.arenas)
    assert ours.buffer == stock.to_executorch().buffer
