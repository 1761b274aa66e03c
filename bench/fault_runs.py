"""Runs the same calls on a module: as stock ExecuTorch, as eager PyTorch and as pte-arenas."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import (
    _load_for_executorch_from_buffer,
    _load_program_from_buffer,
)
from executorch.runtime import Runtime
from torch import nn
from torch.utils import _pytree as pytree

import pte_arenas as pa
from bench.stock_export import export_methods
from pte_arenas.runtime import load_program

Model = nn.Module | Mapping[str, nn.Module]
"""The module of all methods, or one for each."""

Call = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Value:
    """A tensor that can leave its process; `kind` is the type where it is none."""

    kind: str
    sizes: tuple[int, ...] = ()
    elements: tuple[float, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a call gave, and what its inputs were afterwards."""

    outputs: tuple[Value, ...]
    inputs: tuple[Value, ...]


Runner = Callable[[bytes, Sequence[Call]], list[Result]]


def value_of(value: Any) -> Value:
    if not isinstance(value, torch.Tensor):
        return Value(type(value).__name__)
    kind = str(value.dtype).removeprefix("torch.")
    return Value(kind, tuple(value.shape), tuple(value.detach().flatten().tolist()))


def values_of(tree: Any) -> tuple[Value, ...]:
    return tuple(map(value_of, pytree.tree_leaves(tree)))


Execute = Callable[[str, Sequence[Any]], Any]
"""Takes the name of a method and its inputs, and gives its outputs."""


def run_calls(execute: Execute, calls: Sequence[Call]) -> list[Result]:
    """Makes the calls one after another; each gets inputs of its own."""
    results = []
    for name, args in calls:
        inputs = pytree.tree_leaves(copy.deepcopy(args))
        outputs = values_of(execute(name, inputs))
        results.append(Result(outputs, values_of(inputs)))
    return results


def run_keeping(execute: Execute, calls: Sequence[Call]) -> list[Result]:
    """Makes the calls, and looks at what they gave when all are made."""
    kept = [(execute(name, list(args)), args) for name, args in calls]
    return [Result(values_of(outputs), values_of(args)) for outputs, args in kept]


def with_runtime(data: bytes, calls: Sequence[Call]) -> list[Result]:
    """With `executorch.runtime`; a method is loaded at its first call."""
    program = Runtime.get().load_program(data)
    return run_calls(lambda name, inputs: program.load_method(name).execute(inputs), calls)


def with_module(data: bytes, calls: Sequence[Call]) -> list[Result]:
    """With the Python binding of `Module`."""
    return run_calls(_load_for_executorch_from_buffer(data).run_method, calls)


def keeping_outputs(data: bytes, calls: Sequence[Call]) -> list[Result]:
    """With `executorch.runtime` as in C++: outputs are not copied, and looked at in the end."""
    program = _load_program_from_buffer(data)
    methods = {name: program.load_method(name) for name, _ in calls}
    return run_keeping(lambda name, inputs: methods[name](inputs, clone_outputs=False), calls)


def setting_inputs_first(data: bytes, calls: Sequence[Call]) -> list[Result]:
    """The inputs of the last call are set before the others run."""
    program = _load_program_from_buffer(data)
    name, args = calls[-1]
    method = program.load_method(name)
    method.set_inputs(list(args))
    others = run_calls(lambda other, inputs: program.load_method(other)(inputs), calls[:-1])
    method.execute()
    return [*others, Result(values_of(method.get_outputs()), values_of(args))]


@dataclass(frozen=True)
class Case:
    """A fault of stock ExecuTorch: a module, what is called, and how it is lowered and run.

    Attributes:
        fault: Its number in docs/faults.md.
        what: What is done.
        make: Makes the module.
        methods: Example inputs of each method.
        calls: What is called, in order. All outputs are compared.
        buffers: What `pte-arenas` has in an arena.
        why: What goes wrong where stock gives values.
        shown: How many of the last calls the table shows.
        shows_inputs: Whether it shows their inputs afterwards, too.
        refused: Whether `pte-arenas` refuses it, as docs/faults.md then says.
        lower: How the exported programs are lowered.
        config: The configuration of `to_executorch`, for stock and for `pte-arenas`.
        programs: How many programs are made with one configuration; the last one is run.
        run: How stock runs it.
        prepare: What becomes of the module before stock exports it.
        prepare_ours: The same before `pte-arenas` does, if it differs.
    """

    fault: str
    what: str
    make: Callable[[], Model]
    methods: Mapping[str, tuple[Any, ...]]
    calls: Sequence[Call]
    buffers: Sequence[str] = ("*",)
    why: str = ""
    shown: int = 1
    shows_inputs: bool = False
    refused: bool = False
    lower: Callable[..., Any] = to_edge_transform_and_lower
    config: Callable[[], ExecutorchBackendConfig] = ExecutorchBackendConfig
    programs: int = 1
    run: Runner = with_runtime
    prepare: Callable[[Model], Model] = lambda model: model
    prepare_ours: Callable[[Model], Model] | None = None


def stock(case: Case) -> list[Result]:
    """Exports, lowers and runs a case with ExecuTorch alone."""
    config = case.config()
    for _ in range(case.programs):
        model = case.prepare(case.make())
        modules = {name: module_of(model, name) for name in case.methods}
        data = case.lower(export_methods(modules, case.methods)).to_executorch(config).buffer
    return case.run(data, case.calls)


def eager(case: Case) -> list[Result]:
    """Calls the methods."""
    model = case.make()
    with torch.no_grad():
        return run_calls(
            lambda name, inputs: getattr(module_of(model, name), name)(*inputs), case.calls
        )


def ours(case: Case) -> list[Result]:
    """Exports, lowers and runs a case with its arena."""
    config = case.config()
    for _ in range(case.programs):
        model = (case.prepare_ours or case.prepare)(case.make())
        entries = {
            name: pa.EntryPoint(getattr(module_of(model, name), name), args)
            for name, args in case.methods.items()
        }
        arenas = [pa.Arena("state", case.buffers)] if case.buffers else []
        exported = pa.export(entries, arenas)
        edge = case.lower(exported.programs)
        data = pa.to_executorch(edge, exported.arenas, config).buffer
    session = load_program(data).session()
    if case.run is keeping_outputs:
        return run_keeping(functools.partial(session.execute, copy_outputs=False), case.calls)
    return run_calls(session.execute, case.calls)


def module_of(model: Model, method: str) -> nn.Module:
    return model if isinstance(model, nn.Module) else model[method]


def with_xnnpack(programs: Mapping[str, Any]) -> Any:
    """Lowers with XNNPACK."""
    return to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
