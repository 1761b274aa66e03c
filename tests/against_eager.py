"""Runs the same calls on a module and on the program made of it, and compares everything."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower
from torch.utils import _pytree as pytree

import pte_arenas as pa
from pte_arenas.runtime import Session, load_program

Call = tuple[str, tuple[Any, ...]]

LOAD_ORDERS = ("all_first", "lazy", "reload")
"""Load all methods first; each at its first call; unload each after every call."""


@dataclass(frozen=True)
class Model:
    """A module, its entry points by name, and the calls to make.

    Attributes:
        make: Makes a fresh module.
        methods: By method name, example inputs.
        calls: What to call, in order.
        buffers: Patterns of the arena.
    """

    make: Callable[[], torch.nn.Module]
    methods: Mapping[str, tuple[Any, ...]]
    calls: Sequence[Call]
    buffers: Sequence[str] | None = ("*",)
    tolerance: float = 0.0


def emit(model: Model, partitioner: Sequence[Any] = (), **kwargs: Any) -> pa.ArenaProgramManager:
    """Exports, lowers and emits a model with one arena."""
    module = model.make()
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), args) for name, args in model.methods.items()},
        arenas=[pa.Arena("state", model.buffers)],
    )
    edge = to_edge_transform_and_lower(exported.programs, partitioner=list(partitioner) or None)
    return pa.to_executorch(edge, exported.arenas, **kwargs)


def eager_outputs(model: Model) -> list[list[torch.Tensor]]:
    """The outputs of each call, from the module itself."""
    module = model.make()
    with torch.no_grad():
        return [
            [
                leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
                for leaf in pytree.tree_leaves(getattr(module, name)(*copy.deepcopy(args)))
            ]
            for name, args in model.calls
        ]


def check_calls(model: Model, session: Session, load_order: str = "lazy") -> None:
    """Makes the calls on a session and wants what the module gives."""
    if load_order == "all_first":
        for name in model.methods:
            session.load_method(name)
    expected = eager_outputs(model)
    for index, ((name, args), want) in enumerate(zip(model.calls, expected, strict=True)):
        got = session.execute(name, tuple(pytree.tree_leaves(copy.deepcopy(args))))
        assert len(got) == len(want), f"call {index} of {name}: {len(want)} outputs, got {len(got)}"
        for have, wish in zip(got, want, strict=True):
            assert_equal(have, wish, model.tolerance, f"call {index} of {name}")
        if load_order == "reload":
            session.unload_method(name)


def assert_equal(have: Any, wish: Any, tolerance: float, what: str) -> None:
    """Wants a value of the same dtype, shape and elements."""
    if not isinstance(wish, torch.Tensor):
        assert have == wish, what
        return
    assert have.dtype == wish.dtype and have.shape == wish.shape, (
        f"{what}: expected {wish.dtype} {tuple(wish.shape)}, got {have.dtype} {tuple(have.shape)}"
    )
    torch.testing.assert_close(
        have,
        wish,
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda text: f"{what}: {text}",
    )


def check(model: Model, **kwargs: Any) -> None:
    """Exports a model and checks its calls in every load order."""
    program = load_program(emit(model, **kwargs).buffer)
    for load_order in LOAD_ORDERS:
        check_calls(model, program.session(), load_order)


def repeated(*calls: Call, times: int = 3) -> list[Call]:
    """A round of calls several times over."""
    return list(itertools.chain.from_iterable([list(calls)] * times))
