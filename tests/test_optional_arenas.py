"""Files that do not require arenas, on every runtime that loads them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import ExecutionPlan, Operator
from executorch.runtime import Runtime

import pte_arenas as pa
from bench import matrix
from bench.shared_state import (
    BEHAVIOURS,
    METHODS,
    Model,
    X,
    eager,
    emit,
    flat,
    lowered,
    run_module,
    run_ours,
    run_stock,
)
from bench.stock_module import RefusedError, build
from pte_arenas import optional
from pte_arenas.runtime import load_program

ROOT = Path(__file__).parent.parent
cached = functools.cache(emit)


@pytest.fixture(scope="session")
def stock_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application over ExecuTorch's own `Module`, from the wheel."""
    return build(tmp_path_factory.mktemp("stock"))


def documented() -> list[Any]:
    """The cells of the table in docs/compatibility.md about files that do not require arenas."""
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| arenas not required \| (.*) \|$", text, re.MULTILINE)
    cells = []
    for row in rows:
        runtime, *verdicts = row.split(" | ")
        for (start, first), words in zip(matrix.ORDERS.values(), verdicts, strict=True):
            load = "first" if first else "lazy"
            cells.append(pytest.param(runtime, start, first, words, id=f"{runtime}-{start}-{load}"))
    assert len(cells) == 12
    return cells


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "copied-back"])
@pytest.mark.parametrize(("runtime", "start", "first", "words"), documented())
def test_runtimes_do_what_the_documentation_says(
    runtime: str,
    start: float,
    words: str,
    stock_module: Path,
    tmp_path: Path,
    *,
    first: bool,
    in_place: bool,
) -> None:
    run = matrix.runtimes(stock_module, tmp_path, "arenas not required")[runtime]
    assert matrix.cell(run, cached(start, in_place=in_place), start, first=first) == words


def test_the_verdicts_differ() -> None:
    """Otherwise the table would say nothing."""
    for start, same in ((5.0, 0), (0.0, 1)):  # what methods only read is zeros then, in any case
        outputs = {json.dumps(eager(start, behaviour.words)) for behaviour in BEHAVIOURS}
        assert len(outputs) == len(BEHAVIOURS) - same


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
    assert run_ours(data, first=False) == expected
    assert run_stock(data, first=True) == expected
    assert run_module(stock_module, data, "shared", tmp_path, first=True) == expected


def test_ids_of_arenas_are_no_methods_own(stock_module: Path, tmp_path: Path) -> None:
    """Else runtimes that share memory by id would run a method that they have to refuse."""
    edge, arenas = lowered()
    config = ExecutorchBackendConfig(memory_planning_pass={"pure": _Pool(4)})
    data = pa.to_executorch(edge, arenas, config).buffer
    layout = pa.read_layout(data)
    assert layout.method("pure").planned_buffers[3].size == 16
    assert {b.memory_id for m in layout.methods for b in m.bindings} == {5}
    assert run_ours(data, first=False) == eager(5.0, "as eager")
    for first in (False, True):
        with pytest.raises(RuntimeError, match="0x:21"):
            run_stock(data, first=first)
        with pytest.raises(RefusedError, match="0x21"):
            run_module(stock_module, data, "shared", tmp_path, first=first)


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
    assert run_ours(data, first=False) == expected
    assert run_stock(data, first=True) == expected


def test_names_in_the_file(stock_module: Path, tmp_path: Path) -> None:
    data = emit(config=ExecutorchBackendConfig(emit_mutable_buffer_names=True))
    expected = eager(5.0, "as eager")
    assert run_ours(data, first=False) == expected
    assert run_stock(data, first=True) == expected
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
