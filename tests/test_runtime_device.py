"""State on a device in the runtime, from Python: a device that the CPU cannot touch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.test.device_util import DeviceAwarePartitioner
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from torch import Tensor, nn

import pte_arenas as pa
from bench.compiling import compile_cpp
from pte_arenas.runtime import load_program

ROOT = Path(__file__).parents[1]
X = torch.ones(4)


class Cache(nn.Module):
    """The partitioner delegates additions, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(4.0))

    def put(self, x: Tensor, y: Tensor) -> None:
        self.k.copy_(x + y)

    def get(self, x: Tensor) -> Tensor:
        return self.k + x


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = Cache()
    exported = pa.export(
        {"put": pa.EntryPoint(module.put, (X, X)), "get": pa.EntryPoint(module.get, (X,))},
        [pa.Arena("s", ["k"], device="cuda")],
    )
    edge = to_edge_transform_and_lower(exported.programs, partitioner=[DeviceAwarePartitioner()])
    path = tmp_path_factory.mktemp("device") / "cache.pte"
    path.write_bytes(pa.to_executorch(edge, exported.arenas).buffer)
    return path


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that registers a device and its backend when it is loaded."""
    library = tmp_path_factory.mktemp("device") / "guarded_device.so"
    sources = [ROOT / "tests/guarded_backend.cpp", ROOT / "runtime/test/guarded_device.cpp"]
    options = ["-shared", "-fPIC", f"-I{ROOT / 'runtime/test'}"]
    compile_cpp(library, sources, options, ["-lexecutorch"])
    return library


CALLS = """
import ctypes, json, sys, warnings
warnings.simplefilter("ignore")
import torch
import pte_arenas as pa
from pte_arenas.runtime import load_program
ctypes.CDLL(sys.argv[1])
x = torch.ones(4)
session = load_program(sys.argv[2]).session()
slot = session.arena("s")["k"]
seen = [slot.clone(), *session.execute("get", (x,))]
session.execute("put", (x * 2, x * 3))
seen += [slot.clone(), *session.execute("get", (x,))]
slot.copy_from(torch.full((4,), 7.0))
seen += session.execute("get", (x,))
session.unload_method("get")
seen += session.execute("get", (x,))
session.reset()
seen += session.execute("get", (x,))
try:
    slot.tensor
except pa.ArenaError as error:
    message = str(error)
print(json.dumps({"seen": [tensor.tolist() for tensor in seen], "message": message}))
"""


REFUSED = """
import ctypes, sys, warnings
warnings.simplefilter("ignore")
import torch
import pte_arenas as pa
from pte_arenas.runtime import load_program
ctypes.CDLL(sys.argv[1])
session = load_program(sys.argv[2]).session()
for _ in range(2):
    try:
        session.execute("forward", (torch.ones(4),))
    except pa.ArenaError as error:
        print(error)
"""


def test_gives_eagers_results(path: Path, device: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLS, device, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    cache = Cache()
    expected = [cache.k.clone(), cache.get(X)]
    cache.put(X * 2, X * 3)
    expected += [cache.k.clone(), cache.get(X)]
    cache.k.fill_(7.0)
    expected += [cache.get(X), cache.get(X), Cache().get(X)]
    assert answer["seen"] == [tensor.tolist() for tensor in expected]
    assert answer["message"] == (
        "slot 'k': expected an arena on cpu for a view but found cuda:0: copy with clone() and "
        "copy_from()"
    )


@pytest.mark.parametrize("place", ["input 0", "output 0"])
def test_refuses_inputs_and_outputs_on_a_device(place: str, device: Path, tmp_path: Path) -> None:
    class Stateless(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x

    config = ExecutorchBackendConfig(
        enable_non_cpu_memory_planning=True,
        propagate_device_config=PropagateDeviceConfig(
            skip_h2d_for_method_inputs=place.startswith("input"),
            skip_d2h_for_method_outputs=place.startswith("output"),
        ),
    )
    exported = torch.export.export(Stateless(), (X,), strict=True)
    edge = to_edge_transform_and_lower(exported, partitioner=[DeviceAwarePartitioner()])
    path = tmp_path / "device.pte"
    path.write_bytes(edge.to_executorch(config).buffer)
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, device, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        f"forward: expected {place} on the CPU but found it on cuda:0, which Python cannot reach: "
        "export it without skip_h2d_for_method_inputs and skip_d2h_for_method_outputs, or run it "
        "from C++"
    )


def test_names_the_arena_whose_device_is_not_there(path: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        load_program(path).session()
    assert str(caught.value) == (
        "arenas[0].device_type: expected a device allocator for arena 's' on cuda:0 but found "
        "none: link the backend that registers one"
    )
