"""Files that do not require arenas, on every runtime that loads them."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import executorch
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import ExecutionPlan, Operator
from executorch.runtime import Runtime
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas import optional
from pte_arenas.runtime import load_program

ROOT = Path(__file__).parent.parent
X = torch.ones(2, 2)
CALLS = ("add", "add", "pure", "get", "add", "scale", "get", "pure", "add", "get")


class Model(nn.Module):
    """Shared state, buffers of single methods, and a method without any."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.register_buffer("state", torch.full((2, 2), start))
        self.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("of_add", torch.full((3,), 2.0))
        self.register_buffer("zeros_of_add", torch.zeros(2))
        self.register_buffer("of_get", torch.full((3,), 3.0))

    def add(self, x: Tensor) -> tuple[Tensor, ...]:
        self.state.add_(x)
        self.cache[1:3] = x
        self.of_add.add_(x[0, 0])
        self.zeros_of_add.add_(1.0)
        return self.state * 1, self.of_add * 1, self.zeros_of_add * 1

    def get(self, x: Tensor) -> tuple[Tensor, ...]:
        self.of_get.mul_(2.0)
        return self.state * x, self.cache * 1, self.of_get * 1

    def scale(self, x: Tensor) -> Tensor:
        self.cache.mul_(3.0)
        self.state.mul_(x)
        return self.cache.sum(dim=0)

    def pure(self, x: Tensor) -> Tensor:
        """Fills activations that stock runtimes share with the other methods."""
        return torch.relu(x @ x) @ x + 100.0

    def restart(self) -> None:
        """What loading a method does on stock runtimes."""
        self.state.fill_(self.start)


METHODS = ("add", "get", "scale", "pure")
Outputs = list[list[list[float]]]


@functools.cache
def lowered(start: float = 5.0, *arenas: pa.Arena) -> tuple[Any, Any]:
    module = Model(start)
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), (X,)) for name in METHODS},
        arenas or [pa.Arena("state", ["state", "cache"])],
    )
    return to_edge_transform_and_lower(exported.programs), exported.arenas


def emit(start: float = 5.0, config: Any = None, *, in_place: bool = True) -> bytes:
    edge, arenas = lowered(start)
    data: bytes = pa.to_executorch(
        edge, arenas, config, require_arenas=False, in_place=in_place
    ).buffer
    return data


cached = functools.cache(emit)


@pytest.fixture(scope="session")
def stock_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application over ExecuTorch's own `Module`, from the wheel."""
    program = tmp_path_factory.mktemp("stock") / "stock_module"
    (wheel,) = map(Path, executorch.__path__)
    include = wheel / "include"
    subprocess.run(
        [
            os.environ.get("CXX", "c++"),
            "-std=c++17",
            "-DC10_USING_CUSTOM_GENERATED_MACROS",
            f"-I{include}",
            f"-I{include / 'executorch/runtime/core/portable_type/c10'}",
            ROOT / "tests" / "stock_module.cpp",
            "-o",
            program,
            f"-L{wheel / 'lib'}",
            "-Wl,--no-as-needed",
            "-lexecutorch",
            "-lexecutorch_kernels_optimized",
            "-lexecutorch_threadpool",
            f"-Wl,-rpath,{wheel / 'lib'}",
        ],
        check=True,
    )
    return program


def flat(outputs: Any) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in outputs]


def run_methods(load: Callable[[str], Any], *, first: bool) -> Outputs:
    methods = {name: load(name) for name in METHODS} if first else {}
    outputs = []
    for name in CALLS:
        if name not in methods:
            methods[name] = load(name)
        outputs.append(flat(methods[name].execute((X,))))
    return outputs


def run_module(program: Path, data: bytes, memory: str, folder: Path, *, first: bool) -> Outputs:
    path = folder / "program.pte"
    path.write_bytes(data)
    loads = [f"load:{name}" for name in METHODS] if first else []
    done = subprocess.run(
        [program, path, memory, *loads, *(f"run:{name}:1" for name in CALLS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def eager(start: float, verdict: str) -> Outputs:
    """The calls on the module, with the difference that the documentation states."""
    module = Model(start)
    own = {name: copy.deepcopy(module) for name in METHODS}
    outputs, loaded = [], set()
    for name in CALLS:
        if verdict == "starts again at each load" and name not in loaded and name != "pure":
            module.restart()
        loaded.add(name)
        target = own[name] if verdict == "each method has its own" else module
        result = getattr(target, name)(X)
        outputs.append(flat(result if isinstance(result, tuple) else (result,)))
    return outputs


def documented() -> list[Any]:
    """The cells of the table in docs/compatibility.md."""
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`pte_a.*|`exec.*|C\+\+ .*) \|$", text, re.MULTILINE)
    columns = [(5.0, True), (5.0, False), (0.0, False)]
    cells = []
    for row in rows:
        runtime, *verdicts = row.split(" | ")
        for (start, first), verdict in zip(columns, verdicts, strict=True):
            load = "first" if first else "lazy"
            cells.append(
                pytest.param(runtime, start, first, verdict, id=f"{runtime}-{start}-{load}")
            )
    assert len(cells) == 12
    return cells


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "copied-back"])
@pytest.mark.parametrize(("runtime", "start", "first", "verdict"), documented())
def test_runtimes_do_what_the_documentation_says(
    runtime: str,
    start: float,
    verdict: str,
    stock_module: Path,
    tmp_path: Path,
    *,
    first: bool,
    in_place: bool,
) -> None:
    data = cached(start, in_place=in_place)
    if runtime == "`pte_arenas.runtime`":
        outputs = run_methods(load_program(data).session().load_method, first=first)
    elif runtime == "`executorch.runtime`":
        outputs = run_methods(Runtime.get().load_program(data).load_method, first=first)
    else:
        memory = "shared" if "share_memory_arenas=true" in runtime else "private"
        outputs = run_module(stock_module, data, memory, tmp_path, first=first)
    assert outputs == eager(start, verdict)


def test_the_verdicts_differ() -> None:
    """Otherwise the table would say nothing."""
    verdicts = ("as eager", "starts again at each load", "each method has its own")
    assert len({json.dumps(eager(5.0, verdict)) for verdict in verdicts}) == 3


@pytest.mark.fault("F3")
def test_f3_our_loader_initialises_once() -> None:
    """F3: run twice, then load the reader."""
    data = cached()
    ours = load_program(data).session()
    stock = Runtime.get().load_program(data)
    for session in (ours, stock):
        add = session.load_method("add")
        add.execute((X,))
        add.execute((X,))
    assert flat(ours.load_method("get").execute((X,)))[0] == [7.0] * 4
    assert flat(stock.load_method("get").execute((X,)))[0] == [5.0] * 4


def test_memory_ids() -> None:
    layout = pa.read_layout(cached())
    (arena,) = layout.arenas
    assert [slot.fqn for slot in arena.slots] == ["state", "cache"]
    sizes = {m.name: [buffer.size for buffer in m.planned_buffers[1:]] for m in layout.methods}
    assert sizes == {
        "add": [arena.size, 24],  # of_add and zeros_of_add
        "get": [arena.size, 0, 12],  # of_get
        "scale": [arena.size],
        "pure": [],
    }
    bound = {m.name: [b.memory_id for b in m.bindings] for m in layout.methods}
    assert bound == {"add": [2], "get": [2], "scale": [2], "pure": []}


def test_initial_values_are_stored_once_for_all() -> None:
    data = cached()
    assert data.count(torch.full((2, 2), 5.0).numpy().tobytes()) == 1
    layout = pa.read_layout(data)
    slot = layout.slot("state")
    assert slot.data_buffer_idx != 0
    assert layout.slot("cache").data_buffer_idx == 0
    for method in layout.methods:
        for binding in method.bindings:
            indices = {
                tensor.offset: tensor.data_buffer_idx for tensor in reversed(binding.tensors)
            }
            assert indices.get(slot.offset, slot.data_buffer_idx) == slot.data_buffer_idx


def test_same_input_same_bytes() -> None:
    assert emit() == cached()


def test_no_operators_of_this_project() -> None:
    edge, arenas = lowered()
    names = {
        required: {
            operator.name.partition("::")[0]
            for plan in deserialize_pte_binary(
                pa.to_executorch(edge, arenas, require_arenas=required).buffer
            ).program.execution_plan
            for operator in plan.operators
        }
        for required in (True, False)
    }
    assert "pte_arenas" in names[True]  # else this test says nothing
    assert "pte_arenas" not in names[False]


def test_operators_of_this_project_are_refused() -> None:
    plan = ExecutionPlan(
        "add", None, [], [], [], [], [Operator("pte_arenas::scatter", "out")], [], []
    )
    program = type("Program", (), {"execution_plan": [plan]})
    with pytest.raises(pa.ArenaError) as caught:
        optional.check_operators(program)
    assert str(caught.value) == (
        "require_arenas=False: expected operators of ExecuTorch in method 'add' but found "
        "'pte_arenas::scatter'; lower without it or keep require_arenas=True"
    )


def _without_state() -> tuple[Any, Any]:
    exported = pa.export({"pure": pa.EntryPoint(Model(5.0).pure, (X,))})
    return to_edge_transform_and_lower(exported.programs), exported.arenas


@pytest.mark.parametrize(
    ("make", "found"),
    [
        pytest.param(_without_state, "none", id="none"),
        pytest.param(
            lambda: lowered(5.0, pa.Arena("a", ["state"]), pa.Arena("b", ["cache"])),
            "'a' (state, cpu), 'b' (state, cpu)",
            id="two",
        ),
        pytest.param(
            lambda: lowered(5.0, pa.Arena("a", ["*"]), pa.Arena("s", lifetime="scratch")),
            "'a' (state, cpu), 's' (scratch, cpu)",
            id="scratch",
        ),
        pytest.param(
            lambda: lowered(5.0, pa.Arena("a", ["*"], device="cuda")),
            "'a' (state, cuda)",
            id="cuda",
        ),
    ],
)
def test_one_arena(make: Callable[[], tuple[Any, Any]], found: str) -> None:
    edge, shared = make()
    with pytest.raises(pa.ArenaError) as caught:
        pa.to_executorch(edge, shared, require_arenas=False)
    assert str(caught.value) == (
        "require_arenas=False: expected exactly one state arena on the CPU but found "
        f"{found}; declare one arena for all shared state or keep require_arenas=True"
    )


class _Pool(MemoryPlanningPass):
    """A custom pool: gives the first tensor that a method computes a memory id."""

    def __init__(self, memory_id: int, **options: Any) -> None:
        super().__init__(**options)
        self.memory_id = memory_id

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.target.__name__ == "mm.out":
                node.meta["spec"].mem_id = self.memory_id
                break
        return super().run(graph_module, graph_signature)


def test_planner_must_leave_the_id_of_the_arena() -> None:
    edge, arenas = lowered()
    config = ExecutorchBackendConfig(memory_planning_pass=_Pool(2))
    with pytest.raises(pa.ArenaError) as caught:
        pa.to_executorch(edge, arenas, config, require_arenas=False)
    assert str(caught.value) == (
        "require_arenas=False: expected method 'pure' to leave memory id 2 to the arena but found "
        "16 bytes planned there; let the memory planning pass take ids from 3 up or keep "
        "require_arenas=True"
    )


@pytest.mark.parametrize("as_dict", [False, True])
def test_planner_keeps_its_other_ids(stock_module: Path, tmp_path: Path, *, as_dict: bool) -> None:
    pool: Any = {name: _Pool(3) for name in METHODS} if as_dict else _Pool(3)
    data = emit(config=ExecutorchBackendConfig(memory_planning_pass=pool))
    layout = pa.read_layout(data)
    sizes = {m.name: [buffer.size for buffer in m.planned_buffers[1:]] for m in layout.methods}
    arena = layout.arenas[0].size
    assert sizes == {
        "add": [arena, 0, 24],
        "get": [arena, 0, 0, 12],
        "scale": [arena],
        "pure": [0, 16],
    }
    expected = eager(5.0, "as eager")
    assert run_methods(load_program(data).session().load_method, first=False) == expected
    assert run_methods(Runtime.get().load_program(data).load_method, first=True) == expected
    assert run_module(stock_module, data, "shared", tmp_path, first=True) == expected


def test_xnnpack() -> None:
    module = Model(5.0)
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), (X,)) for name in METHODS},
        [pa.Arena("state", ["state", "cache"])],
    )
    edge = to_edge_transform_and_lower(exported.programs, partitioner=[XnnpackPartitioner()])
    data = pa.to_executorch(edge, exported.arenas, require_arenas=False).buffer
    assert deserialize_pte_binary(data).program.backend_delegate_data
    expected = eager(5.0, "as eager")
    assert run_methods(load_program(data).session().load_method, first=False) == expected
    assert run_methods(Runtime.get().load_program(data).load_method, first=True) == expected


def test_names_in_the_file(stock_module: Path, tmp_path: Path) -> None:
    data = emit(config=ExecutorchBackendConfig(emit_mutable_buffer_names=True))
    expected = eager(5.0, "as eager")
    assert run_methods(load_program(data).session().load_method, first=False) == expected
    assert run_methods(Runtime.get().load_program(data).load_method, first=True) == expected
    assert run_module(stock_module, data, "shared", tmp_path, first=True) == expected


def test_private_buffers_without_planned_memory_stay_without() -> None:
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_mutable_buffers=False),
        emit_mutable_buffer_names=True,
    )
    layout = pa.read_layout(emit(config=config))
    assert {m.name: len(m.planned_buffers) for m in layout.methods} == {
        "add": 2,
        "get": 2,
        "scale": 2,
        "pure": 1,
    }
