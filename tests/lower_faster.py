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
from torch.fx.traceback import NodeSource


@pytest.fixture(autouse=True, scope="session")
def lower_faster() -> Iterator[None]:
    """Spares half of the time of lowering, in five places of torch 2.13.

    It looks 650 operators up for each of 40 namespaces several times for a method; replaces the
    kernels of each for 21 devices, of which the tests have two, and evaluates a type annotation
    each time; copies the history of a node, which nothing changes, whenever it makes a node of it;
    and makes so many objects that the garbage collector visits those of torch again and again.
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
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
