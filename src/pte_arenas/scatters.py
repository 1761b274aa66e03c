"""Scatters whose output may be their first argument, so that only the written part moves.

The stock kernels copy all of their input to the output first, whether or not these are one tensor.
The kernels of these operators are in this package's runtime library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.fx import Node

_SCHEMAS = {
    "slice_scatter": "Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
    "SymInt step=1",
    "index_put": "Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False",
    "scatter": "Tensor self, int dim, Tensor index, Tensor src",
}
_LIBRARY: Any = torch.library.Library("pte_arenas", "FRAGMENT")  # type: ignore[no-untyped-call]


def _out_variant(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def out_variant(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return out.copy_(function(*args, **kwargs))

    return out_variant


for _name, _arguments in _SCHEMAS.items():
    _function = getattr(torch.ops.aten, _name)
    _LIBRARY.define(f"{_name}({_arguments}) -> Tensor")
    _LIBRARY.define(f"{_name}.out({_arguments}, *, Tensor(a!) out) -> Tensor(a!)")
    for _key in ("CompositeExplicitAutograd", "Meta"):
        _LIBRARY.impl(_name, _function, _key)
        _LIBRARY.impl(f"{_name}.out", _out_variant(_function), _key)

_EDGE = exir_ops.edge
_REPLACEMENTS = {
    _EDGE.aten.slice_scatter.default: _EDGE.pte_arenas.slice_scatter.default,
    _EDGE.aten.index_put.default: _EDGE.pte_arenas.index_put.default,
    _EDGE.aten.scatter.src: _EDGE.pte_arenas.scatter.default,
}


def use_scatters(value: Node) -> None:
    """Replaces the stock scatters by which a buffer's new value is made from the old, in place.

    Args:
        value: The new value in an edge program.
    """
    node: Any = value
    while isinstance(node, Node) and node.op == "call_function":
        if node.target in _REPLACEMENTS:
            if node.target is _EDGE.aten.index_put.default and not _is_simple(node):
                return
            state: Any = node.args[0]
            if state.meta["val"].dtype != _source(node).meta["val"].dtype:
                return
            node.target = _REPLACEMENTS[node.target]
        elif node.target is not _EDGE.aten.view_copy.default and not (
            node.args and _alike(node.args[0], node)
        ):
            return
        node = node.args[0]


def _is_simple(node: Node) -> bool:
    """Whether an index_put is one that the kernel does: integers for adjoining dimensions."""
    indices: Any = node.args[1]
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    return (
        not any(node.args[3:])  # accumulate
        and dims == list(range(dims[0], dims[-1] + 1))
        and all(indices[dim].meta["val"].dtype in (torch.int64, torch.int32) for dim in dims)
    )


def _source(node: Node) -> Any:
    if node.target is _EDGE.aten.index_put.default:
        return node.args[2]
    return node.args[3] if node.target is _EDGE.aten.scatter.src else node.args[1]


def _alike(one: Any, other: Node) -> bool:
    if not isinstance(one, Node) or not isinstance(one.meta.get("val"), torch.Tensor):
        return False
    have, want = one.meta["val"], other.meta["val"]
    return isinstance(want, torch.Tensor) and (have.shape, have.dtype) == (want.shape, want.dtype)
