"""One stateful module on every runtime: its files, how they are run, and what eager PyTorch gives.

Runtimes that know no arenas share too little or too much. What then comes out is what eager PyTorch
gives where the same is done on purpose: see `BEHAVIOURS`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from torch import Tensor, nn

import pte_arenas as pa
from bench import stock_module
from bench.stock_export import export_methods
from pte_arenas.runtime import load_program

X = torch.ones(2, 2)
METHODS = ("add", "get", "scale", "pure")
CALLS = ("add", "add", "pure", "get", "add", "scale", "get", "pure", "add", "get")
Outputs = list[list[list[float]]]
"""For each call the elements of each output."""


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


# --- Files ---


@functools.cache
def lowered(start: float = 5.0, *arenas: pa.Arena) -> tuple[Any, Any]:
    """The lowered methods and their arenas; by default one, of all that methods share."""
    module = Model(start)
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), (X,)) for name in METHODS},
        arenas or [pa.Arena("state", ["state", "cache"])],
    )
    return to_edge_transform_and_lower(exported.programs), exported.arenas


def emit(
    start: float = 5.0, config: Any = None, *, require_arenas: bool = False, in_place: bool = True
) -> bytes:
    edge, arenas = lowered(start)
    data: bytes = pa.to_executorch(
        edge, arenas, config, require_arenas=require_arenas, in_place=in_place
    ).buffer
    return data


def emit_stock(start: float) -> bytes:
    """A file as ExecuTorch makes it by default."""
    return _stock(start, MemoryPlanningPass())


def emit_stock_sharing(start: float) -> bytes:
    """A file of ExecuTorch's with all mutable buffers where runtimes may share them."""
    return _stock(start, MemoryPlanningPass(share_mutable_buffers=True))


def _stock(start: float, planning: MemoryPlanningPass) -> bytes:
    programs = export_methods(dict.fromkeys(METHODS, Model(start)), dict.fromkeys(METHODS, (X,)))
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    data: bytes = to_edge_transform_and_lower(programs).to_executorch(config).buffer
    return data


# --- Runtimes ---


def flat(outputs: Any) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in outputs]


def run_methods(
    load: Callable[[str], Any], *, first: bool, calls: Sequence[str] = CALLS
) -> Outputs:
    """Makes the calls; methods are loaded before the first one or each at its own first one."""
    methods = {name: load(name) for name in METHODS} if first else {}
    outputs = []
    for name in calls:
        if name not in methods:
            methods[name] = load(name)
        outputs.append(flat(methods[name].execute((X,))))
    return outputs


def run_ours(
    data: bytes,
    *,
    first: bool,
    calls: Sequence[str] = CALLS,
    shared_memory_ids: Sequence[int] | None = None,
) -> Outputs:
    session = load_program(data, shared_memory_ids=shared_memory_ids).session()
    return run_methods(session.load_method, first=first, calls=calls)


def run_stock(data: bytes, *, first: bool, calls: Sequence[str] = CALLS) -> Outputs:
    return run_methods(Runtime.get().load_program(data).load_method, first=first, calls=calls)


def run_module(
    program: Path,
    data: bytes,
    memory: str,
    folder: Path,
    *,
    first: bool,
    calls: Sequence[str] = CALLS,
) -> Outputs:
    """The same with C++ `Module`, in the application that `stock_module.build` made."""
    path = folder / "program.pte"
    path.write_bytes(data)
    loads = [f"load:{name}" for name in METHODS] if first else []
    return stock_module.run(program, path, memory, [*loads, *(f"run:{name}:1" for name in calls)])


# --- What comes out ---


@dataclass(frozen=True)
class Behaviour:
    """What a runtime does with state.

    Attributes:
        words: What documents call it.
        own: Each method has a copy of its own.
        restarts: Loading a method writes initial values over the state.
        zeros: Whose changes start as zeros: those of each method in its own buffers, or of all
            methods in all of them.
    """

    words: str
    own: bool = False
    restarts: bool = False
    zeros: Literal["", "each", "all"] = ""


BEHAVIOURS = (
    Behaviour("as eager"),
    Behaviour("starts again at each load", restarts=True),
    Behaviour("each its own", own=True),
    Behaviour("each its own, from zeros", own=True, zeros="each"),
    Behaviour("as eager, from zeros", zeros="all"),
    Behaviour("each its own, all from zeros", own=True, zeros="all"),
)
OVERWRITES = "activations overwrite state"


def eager(start: float, behaviour: str) -> Outputs:
    """The calls on the module, behaving as the words say."""
    (does,) = (each for each in BEHAVIOURS if each.words == behaviour)
    module = Model(start)
    own = {name: copy.deepcopy(module) if does.own else module for name in METHODS}
    for name, target in own.items() if does.zeros else ():
        for method in METHODS if does.zeros == "all" else (name,):
            _zero_what_changes(target, method)
    outputs, loaded = [], set()
    for name in CALLS:
        if does.restarts and name not in loaded and name != "pure":
            module.restart()
        loaded.add(name)
        result = getattr(own[name], name)(X)
        outputs.append(flat(result if isinstance(result, tuple) else (result,)))
    return outputs


def _zero_what_changes(module: Model, method: str) -> None:
    """Zeros the buffers that a method changes."""
    tried = copy.deepcopy(module)
    getattr(tried, method)(X)
    for name, buffer in module.named_buffers():
        if not torch.equal(tried.get_buffer(name), buffer):
            buffer.zero_()


def verdict(start: float, run: Callable[[Sequence[str]], Outputs]) -> str:
    """What a runtime does with state, in the words of `BEHAVIOURS` or those of `OVERWRITES`.

    Args:
        start: Where the shared state starts.
        run: Loads a file and makes calls. It is also asked for the calls of each method alone: if
            those are as eager and all together are not, methods write over one another's memory.
    """
    outputs = run(CALLS)
    expected = {behaviour.words: eager(start, behaviour.words) for behaviour in BEHAVIOURS}
    for words, wanted in expected.items():
        if outputs == wanted:
            return words
    alone = {name: iter(run([name] * CALLS.count(name))) for name in METHODS}
    if [next(alone[name]) for name in CALLS] == expected["each its own, from zeros"]:
        return OVERWRITES
    return "something else"
