"""A pytest plugin that makes lowering faster where it repeats itself."""

from __future__ import annotations

import gc
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._export.utils import _collect_all_valid_cia_ops as _COLLECT
from torch.export import decomp_utils, exported_program
from torch.fx.graph import _PyTreeCodeGen
from torch.fx.graph_module import GraphModule
from torch.fx.traceback import NodeSource

_COMPILE = GraphModule.recompile
_COMPILED = ("_code", "_lineno_map", "_prologue_start")
"""What compiling leaves."""


class _Forward:
    """`forward` of a graph module that is compiled once somebody asks for it."""

    def __get__(self, module: GraphModule | None, _: type) -> Any:
        if module is None:
            return self
        _COMPILE(module)
        return module.forward


def _compile_later(module: GraphModule) -> None:
    if isinstance(module.graph._codegen, _PyTreeCodeGen):
        module._in_spec = module.graph._codegen.pytree_info.in_spec
        module._out_spec = module.graph._codegen.pytree_info.out_spec
    for name in _COMPILED:
        module.__dict__.pop(name, None)
    type(module).forward = _Forward()  # type: ignore[method-assign,assignment]


def _attribute(module: GraphModule, name: str) -> Any:
    if name in _COMPILED and "_graph" in module.__dict__:
        _COMPILE(module)
        return module.__dict__[name]
    return torch.nn.Module.__getattr__(module, name)


@pytest.fixture(autouse=True, scope="session")
def lower_faster() -> Iterator[None]:
    """Spares more than half of the time of lowering, in six places of torch 2.13.

    It looks 650 operators up for each of 40 namespaces several times for a method; replaces the
    kernels of each for 21 devices, of which the tests have two, and evaluates a type annotation
    each time; copies the history of a node, which nothing changes, whenever it makes a node of it;
    compiles code for each graph, which hardly anybody calls; and makes so many objects that the
    garbage collector visits those of torch again and again.
    """
    operators: dict[int, Any] = {}

    def collect() -> Any:
        names = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        known = len(names)  # others appear as they are registered
        if known not in operators:
            operators[known] = _COLLECT()
        return operators[known]

    thresholds = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exported_program, "_collect_all_valid_cia_ops", collect)
        patch.setattr(decomp_utils, "_collect_all_valid_cia_ops", collect)
        patch.setattr(torch._ops, "Callable", typing.Callable)  # remembers its subscripts
        for name in ("_BACKEND_KEYS_TO_OVERRIDE", "_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE"):
            keys = getattr(exported_program, name)
            ours = [key for key in keys if key.name.removeprefix("Autograd") in ("CPU", "Meta")]
            patch.setattr(exported_program, name, ours)
        patch.setattr(NodeSource, "__deepcopy__", lambda self, _: self, raising=False)
        patch.setattr(GraphModule, "recompile", _compile_later)
        patch.setattr(GraphModule, "__getattr__", _attribute, raising=False)
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
