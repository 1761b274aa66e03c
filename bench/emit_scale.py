"""How emitting grows with the number of methods and slots.

Run it as `python -m bench.emit_scale`. Lowering takes stock about 0.6 s for each method, and it
plans and emits a method in the square of its buffers (18 s for 1,000). So one method is exported
and lowered once, and the program has many copies of its graph, which is all the same to what comes
after lowering:

* *divided*: 1,000 slots, divided among the methods. The whole of `to_executorch`, for the same
  graphs without arenas and with.
* *all*: every method uses every one of 1,000 slots. What this package does alone: stock's passes,
  emission and serialisation are replaced by copies of what they once made of the one method.

Seconds are those of the processor, on one thread.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import rich
import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.tensor import TensorSpec
from rich.table import Table
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils import _pytree as pytree

import pte_arenas as pa
from pte_arenas import _exir
from pte_arenas.lower import _copy_module

SLOTS = 1000
METHODS = (8, 16, 32, 64)
EXAMPLE = (torch.ones(4),)


class Many(nn.Module):
    """Adds its input to every one of its buffers."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        for slot in range(slots):
            self.register_buffer(f"slot{slot}", torch.full((4,), float(slot)))

    def forward(self, x: Tensor) -> Tensor:
        for _, buffer in self.named_buffers():
            buffer.add_(x)
        return x + 1


class OneMethod:
    """A lowered method with so many slots, and programs that have it several times."""

    def __init__(self, slots: int) -> None:
        exported = pa.export(
            {"forward": pa.EntryPoint(Many(slots), EXAMPLE)}, [pa.Arena("state", ["*"])]
        )
        self.edge = to_edge(exported.programs)
        (self.arena,) = exported.arenas

    def program(self, methods: int) -> EdgeProgramManager:
        """A program with copies of the method."""
        (one,) = _exir.edge_programs(self.edge).values()
        return _exir.with_programs(self.edge, {f"method{i}": one for i in range(methods)})

    def divided(self, methods: int) -> list[pa.SharedArena]:
        """An arena in which each method has slots of its own."""
        slots = [
            pa.SharedBuffer(f"part{i}.{buffer.name}", buffer.values, {f"method{i}": name})
            for i in range(methods)
            for buffer in self.arena.buffers
            for name in buffer.fqns.values()
        ]
        return [pa.SharedArena(self.arena.arena, tuple(slots))]

    def shared(self, methods: int) -> list[pa.SharedArena]:
        """An arena whose slots every method uses."""
        slots = [
            pa.SharedBuffer(
                buffer.name, buffer.values, {f"method{i}": name for i in range(methods)}
            )
            for buffer in self.arena.buffers
            for name in buffer.fqns.values()
        ]
        return [pa.SharedArena(self.arena.arena, tuple(slots))]


def seconds(function: Callable[[], Any]) -> float:
    """Time of the processor that a call takes."""
    start = time.process_time()
    function()
    return time.process_time() - start


def divided(methods: int) -> dict[str, float]:
    """Emits a program whose methods have the slots divided among them."""
    one = OneMethod(SLOTS // methods)
    exported = torch.export.export(Many(SLOTS // methods), EXAMPLE)
    stock = to_edge({f"method{i}": copy.deepcopy(exported) for i in range(methods)})
    edge, arenas = one.program(methods), one.divided(methods)
    return {
        "stock": seconds(stock.to_executorch),
        "arenas, in_place=False": seconds(
            lambda: pa.to_executorch(edge, arenas, in_place=False),
        ),
        "arenas": seconds(lambda: pa.to_executorch(edge, arenas)),
    }


class _Recorder(MemoryPlanningPass):
    """Keeps a copy of what it is to plan."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[GraphModule, Any]] = []

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        self.kept.append((_copy_module(graph_module), graph_signature))
        return super().run(graph_module, graph_signature)


class _NoPlanning:
    def run(self, graph_module: GraphModule, _: Any = None) -> Any:
        graph_module.meta["non_const_buffer_sizes"] = [0, 16]
        return PassResult(graph_module, modified=True)


class WithoutStock:
    """Emits with copies of what stock made of one method in the place of stock.

    Attributes:
        seconds: Time that these copies, and stock's serialisation, have taken.
    """

    def __init__(self, one: OneMethod) -> None:
        self.seconds = 0.0
        self._serialize = _exir.serialize
        recorder, emit, outputs = _Recorder(), _exir.emit, []

        def keep(*args: Any) -> Any:
            outputs.append(emit(*args))
            return outputs[-1]

        config = ExecutorchBackendConfig(memory_planning_pass=recorder)
        with mock.patch.object(_exir, "emit", keep):
            pa.to_executorch(one.edge, [one.arena], config, in_place=False)
        ((self._module, self._signature),) = recorder.kept
        (self._output,) = outputs

    def time(self, edge: EdgeProgramManager, arenas: list[pa.SharedArena]) -> float:
        """Emits a program and returns the time that stock had no part in."""
        config = ExecutorchBackendConfig(memory_planning_pass=_NoPlanning())
        stand_ins = {"to_executorch": self._plan, "emit": self._emit, "serialize": self._pack}
        self.seconds = 0.0
        with mock.patch.multiple(_exir, **stand_ins):
            total = seconds(lambda: pa.to_executorch(edge, arenas, config))
        return total - self.seconds

    @contextmanager
    def _stock(self) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds += time.process_time() - start

    def _plan(self, edge: EdgeProgramManager, config: ExecutorchBackendConfig, make: Any) -> Any:
        planned = {}
        for name in _exir.edge_programs(edge):
            with self._stock():
                module = _with_own_specs(self._module)
            config.memory_planning_pass.run(module, self._signature)
            planned[name] = SimpleNamespace(graph_module=module, graph_signature=self._signature)
        return make(planned, None, config, None)

    def _emit(self, programs: dict[str, Any], *_: Any) -> Any:
        with self._stock():
            (plan,) = self._output.program.execution_plan
            plans = [dataclasses.replace(plan, name=name) for name in programs]
            program = dataclasses.replace(self._output.program, execution_plan=plans)
            return dataclasses.replace(self._output, program=program, mutable_data=None)

    def _pack(self, *args: Any) -> Any:
        with self._stock():
            return self._serialize(*args)


def _with_own_specs(module: GraphModule) -> GraphModule:
    """Copies a graph and the specs of its tensors."""
    specs: dict[int, TensorSpec] = {}

    def own(spec: TensorSpec) -> TensorSpec:
        if id(spec) not in specs:
            specs[id(spec)] = copied = copy.copy(spec)
            copied.const = False  # what the package hides from planning is marked so
        return specs[id(spec)]

    copied = _copy_module(module)
    for node in copied.graph.nodes:
        if "spec" in node.meta:
            node.meta["spec"] = pytree.tree_map_only(TensorSpec, own, node.meta["spec"])
    return copied


def measure() -> dict[str, dict[int, float]]:
    """Seconds by what was done and the number of methods."""
    rows: dict[str, dict[int, float]] = {}
    for methods in METHODS:
        for name, taken in divided(methods).items():
            rows.setdefault(f"divided, {name}", {})[methods] = taken
    one = OneMethod(SLOTS)
    without_stock = WithoutStock(one)
    for methods in METHODS:
        taken = without_stock.time(one.program(methods), one.shared(methods))
        rows.setdefault("all, this package alone", {})[methods] = taken
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.emit_scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = measure()
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)
        return
    table = Table(f"{SLOTS:,} slots, seconds")
    for methods in METHODS:
        table.add_column(f"{methods} methods", justify="right")
    for name, taken in rows.items():
        table.add_row(name, *(f"{taken[methods]:.2f}" for methods in METHODS))
    rich.print(table)


if __name__ == "__main__":
    main()
