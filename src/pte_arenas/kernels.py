"""The operators of this package whose kernels are in its runtime library.

Scatters whose output may be their first argument, so that only the written part moves: the stock
kernels copy all of their input to the output first, whether or not these are one tensor. And parts
whose output may be that part of their first argument, so that nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

SCATTERS = {
    "slice_scatter": "Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
    "SymInt step=1",
    "index_put": "Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False",
    "scatter": "Tensor self, int dim, Tensor index, Tensor src",
}
"""By name, the arguments of operators whose output may be their first argument."""

PARTS = {
    "slice_copy": "Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1",
    "select_copy": "Tensor self, int dim, SymInt index",
    "unsqueeze_copy": "Tensor self, int dim",
    "squeeze_copy": "Tensor self, int[] dim",
}
"""By name, the arguments of operators whose output may be a part of their first argument."""

_LIBRARY: Any = torch.library.Library("pte_arenas", "FRAGMENT")  # type: ignore[no-untyped-call]


def _out_variant(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def out_variant(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return out.copy_(function(*args, **kwargs))

    return out_variant


for _name, _arguments in {**SCATTERS, **PARTS}.items():
    _function = getattr(torch.ops.aten, _name)
    _LIBRARY.define(f"{_name}({_arguments}) -> Tensor")
    _LIBRARY.define(f"{_name}.out({_arguments}, *, Tensor(a!) out) -> Tensor(a!)")
    for _key in ("CompositeExplicitAutograd", "Meta"):
        _LIBRARY.impl(_name, _function, _key)
        _LIBRARY.impl(f"{_name}.out", _out_variant(_function), _key)

OURS = torch.ops.pte_arenas
