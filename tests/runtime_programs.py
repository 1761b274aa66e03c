"""Programs for the tests of the runtime: with arenas, and as stock ExecuTorch makes them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch import Tensor, nn

import pte_arenas as pa
from bench.stock_export import as_forward
from pte_arenas.runtime import Program, load_program


class Counter(nn.Module):
    """State that starts at 5, and a method that does not touch it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((2, 3), 5.0))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def bump(self, x: Tensor) -> Tensor:
        self.count.add_(x)
        self.steps.add_(1)
        return self.count * 1

    def get(self) -> tuple[Tensor, Tensor]:
        return self.count * 1, self.steps * 1

    def double(self, x: Tensor) -> Tensor:
        return x * 2


ONES = torch.ones(2, 3)


@functools.cache
def counter_bytes() -> bytes:
    """`Counter` with both buffers in the arena `state`."""
    module = Counter()
    exported = pa.export(
        {
            "bump": pa.EntryPoint(module.bump, (ONES,)),
            "get": pa.EntryPoint(module.get),
            "double": pa.EntryPoint(module.double, (ONES,)),
        },
        arenas=[pa.Arena("state", buffers=["count", "steps"])],
    )
    data: bytes = pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer
    return data


def counter() -> Program:
    """A fresh program over the same bytes."""
    return load_program(counter_bytes())


def stock_bytes(
    module: nn.Module,
    methods: Mapping[str, Sequence[Any]],
    *,
    dynamic_shapes: Any = None,
    plan_inputs: bool = True,
    plan_outputs: bool = True,
) -> bytes:
    """A program as ExecuTorch makes it by default, without arenas.

    Args:
        module: Has the methods; `forward` is exported as it is.
        methods: Example arguments by method name. Each is copied by itself, because export takes
            one tensor at two places for one input.
        dynamic_shapes: For the one method there then is.
        plan_inputs: Whether the program has memory for its inputs.
        plan_outputs: Whether the program has memory for its outputs.
    """
    programs = {
        name: torch.export.export(
            as_forward(module, name),
            tuple(copy.deepcopy(arg) for arg in args),
            dynamic_shapes=dynamic_shapes,
        )
        for name, args in methods.items()
    }
    planning = MemoryPlanningPass(alloc_graph_input=plan_inputs, alloc_graph_output=plan_outputs)
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    data: bytes = to_edge(programs).to_executorch(config).buffer
    return data


def stock(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Loads `forward` of a stock program of a module and gives its `execute`."""
    data = stock_bytes(module, {"forward": args}, **kwargs)
    return load_program(data).load_method("forward").execute
