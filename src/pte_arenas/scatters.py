"""Lets new state be made from old by scatters whose output may be their first argument."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.fx import Node

import pte_arenas.kernels  # noqa: F401  # defines the operators

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
