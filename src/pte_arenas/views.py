"""Views of a contiguous tensor, spelled out as operators that lowering knows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Step = tuple[Any, ...]
"""An operator's name (`view`, `slice`, `select`, `permute`, `unsqueeze`) and its arguments."""


@dataclass(frozen=True)
class View:
    """A tensor as a part of the tensor that holds its memory.

    Attributes:
        sizes: Sizes of the view.
        strides: Strides of the view, in elements.
        offset: First element, counted from the first element of the base.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def view_steps(base: tuple[int, ...], view: View) -> list[Step] | None:
    """Returns the operators that make a view, or None where there are none.

    Args:
        base: Sizes of the contiguous tensor that the view is a part of.
        view: The view.
    """
    return _dense(view) or _strided(base, view)


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor, in elements."""
    strides = [1] * len(sizes)
    for dim in range(len(sizes) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(sizes[dim + 1], 1)
    return tuple(strides)


def _dense(view: View) -> list[Step] | None:
    """A run of elements: flatten, cut, give it its sizes."""
    expected = contiguous_strides(view.sizes)
    if any(
        size != 1 and have != want
        for size, have, want in zip(view.sizes, view.strides, expected, strict=True)
    ):
        return None
    end = view.offset + math.prod(view.sizes)
    return [
        ("view", [-1]),
        ("slice", 0, view.offset, end),
        ("view", list(view.sizes)),
    ]


def _strided(base: tuple[int, ...], view: View) -> list[Step] | None:
    """Per dimension of the base a range or one index, then the dimensions in the view's order."""
    dims = {
        dim: (size, stride)
        for dim, (size, stride) in enumerate(zip(view.sizes, view.strides, strict=True))
        if size != 1
    }
    cuts: list[Step] = []
    order: list[int] = []
    rest = view.offset
    for dim, (size, stride) in enumerate(zip(base, contiguous_strides(base), strict=True)):
        start, rest = divmod(rest, stride)
        inside = [
            index for index, (_, step) in dims.items() if stride <= step < stride * max(size, 1)
        ]
        if not inside:
            cuts.append(("select", dim, start))
            continue
        count, step = dims.pop(inside[0])
        step, odd = divmod(step, stride)
        if len(inside) > 1 or odd or start + (count - 1) * step >= size:
            return None
        cuts.append(("slice", dim, start, start + (count - 1) * step + 1, step))
        order.append(inside[0])
    if dims or rest:
        return None
    # Selecting removes a dimension: from the last to the first, the numbers stay right.
    steps = list(reversed(cuts))
    if order != sorted(order):
        steps.append(("permute", [order.index(dim) for dim in sorted(order)]))
    for dim, size in enumerate(view.sizes):
        if size == 1:
            steps.append(("unsqueeze", dim))
    return steps
