"""Reads a part of state where it is, instead of copying it out.

Stock lowering copies `k[3]` and `k[:n]` to an activation. Where such a part is one run of bytes, an
ExecuTorch tensor can be that run: the result is placed in the slot, at the part's first byte, and a
kernel of this package gives it its sizes. That is safe where

1. the part is taken of one occupant of the buffer (see `inplace.py`), of a view of it or of another
   part that is placed, and begins at an element that is known when the program is made;
2. everything that reads the part, or a view of it, is an operator or a delegate that runs before
   the next occupant is computed, and before any operator mutates the buffer.

Elsewhere the stock copy stays. A part's length may be dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.schema import TensorShapeDynamism
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from pte_arenas.inplace import Aliases, computed_at, mutates, view_source
from pte_arenas.kernels import OURS

_ATEN = torch.ops.aten
_KERNELS = {
    _ATEN.slice_copy.Tensor_out: OURS.slice_copy.out,
    _ATEN.select_copy.int_out: OURS.select_copy.out,
    _ATEN.unsqueeze_copy.out: OURS.unsqueeze_copy.out,
    _ATEN.squeeze_copy.dims_out: OURS.squeeze_copy.out,
}
_WHOLE = (_ATEN.unsqueeze_copy.out, _ATEN.squeeze_copy.dims_out)


@dataclass(frozen=True)
class _Run:
    """Bytes of a buffer: of which, from where, and until when they have one occupant."""

    state: Node
    begin: int
    end: float


def place_parts(
    module: GraphModule, occupants: Mapping[Node, Sequence[Node]]
) -> dict[Node, list[tuple[Node, int]]]:
    """Lets tensors be parts of buffers, where that is safe.

    Works on a graph in the form that memory planning gets, after `place_new_values`.

    Args:
        module: The graph.
        occupants: By placeholder of a buffer, the nodes whose values are placed in it.

    Returns:
        By placeholder, the nodes that are now parts of the buffer, with their first byte in it.
    """
    graph = Aliases.of(module)
    runs = dict(_occupants(graph, occupants))
    parts: dict[Node, list[tuple[Node, int]]] = {}
    for node in module.graph.nodes:
        source: Any = view_source(node) or (node.args[0] if node.target in _KERNELS else None)
        if node in runs or source not in runs:  # occupants are there from the start
            continue
        run = runs[source]
        if node.target in _KERNELS:
            offset = _offset(node)
            if offset is None:
                continue
            run = _Run(run.state, run.begin + offset, run.end)
            if not _fits(node, run) or not _safe(graph, node, run):
                continue
            node.target = _KERNELS[node.target]
            parts.setdefault(run.state, []).append((node, run.begin))
        runs[node] = run
    if parts:
        module.recompile()
    return parts


def _occupants(
    graph: Aliases, occupants: Mapping[Node, Sequence[Node]]
) -> Iterator[tuple[Node, _Run]]:
    """Yields every occupant, with the bytes and the time that it has."""
    for state, placed in occupants.items():
        chain = [state, *placed]
        mutated = min(
            (
                graph.order[user]
                for occupant in chain
                for user, member in graph.readers(occupant)
                if mutates(user, member)
            ),
            default=math.inf,
        )
        ends = [*(float(graph.order[computed_at(node)]) for node in placed), math.inf]
        for occupant, end in zip(chain, ends, strict=True):
            yield occupant, _Run(state, 0, min(end, mutated))


def _offset(node: Node) -> int | None:
    """The byte of its source at which a part begins, if it is one run from a known byte."""
    if node.kwargs.keys() - {"out"}:  # lowering gives all others by position
        return None
    if node.target in _WHOLE:
        return 0
    source: Any = node.args[0]
    sizes: Sequence[Any] = source.meta["val"].shape
    # `dim, index` of a select, or `dim=0, start=None, end=None, step=1` of a slice.
    given: Any = node.args[1:]
    dim, start, _, step = given + (0, None, None, 1)[len(given) :]
    dim = _wrapped(dim, len(sizes))
    start = 0 if start is None else start
    if step != 1 or any(size != 1 for size in _known(sizes[:dim])):
        return None
    if start == 0:
        return 0
    behind = _known(sizes[dim:])
    if not isinstance(start, int) or None in behind:
        return None
    first = min(max(_wrapped(start, behind[0]), 0), behind[0])
    return int(first * math.prod(behind[1:]) * source.meta["val"].itemsize)


def _known(sizes: Sequence[Any]) -> list[Any]:
    """Sizes, with None for those that are not known before the program runs."""
    return [size if isinstance(size, int) else None for size in sizes]


def _wrapped(index: Any, size: Any) -> Any:
    return index + size if isinstance(index, int) and index < 0 else index


def _fits(node: Node, run: _Run) -> bool:
    """Whether the tensor, at its largest, is a run of the buffer's bytes."""
    spec, whole = node.meta["spec"], run.state.meta["spec"]
    return (
        spec.shape_dynamism != TensorShapeDynamism.DYNAMIC_UNBOUND
        and spec.dtype == whole.dtype
        and _in_order(spec)
        and _in_order(node.args[0].meta["spec"])  # type: ignore[union-attr]
        and spec.nbytes() > 0
        and run.begin + spec.nbytes() <= whole.nbytes()
        and not spec.const
    )


def _in_order(spec: Any) -> bool:
    return list(spec.dim_order) == list(range(len(spec.shape)))


def _safe(graph: Aliases, node: Node, run: _Run) -> bool:
    """Rule 2 of this module."""
    return graph.order[node] < run.end and all(
        graph.order[user] < run.end and not mutates(user, member) and _only_reads(user)
        for user, member in graph.readers(node)
    )


def _only_reads(user: Node) -> bool:
    return isinstance(user.target, OpOverload) or user.target is executorch_call_delegate
