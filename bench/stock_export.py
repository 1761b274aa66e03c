"""Methods of a module as stock ExecuTorch exports them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def as_forward(module: nn.Module, method: str) -> nn.Module:
    """The module with a method as its `forward`, which export takes; its tensors are the same."""
    if method == "forward":
        return module
    twin = copy.copy(module)
    kind = type(module)
    twin.__class__ = type(kind.__name__, (kind,), {"forward": getattr(kind, method)})
    return twin


def export_methods(
    modules: Mapping[str, nn.Module], examples: Mapping[str, tuple[Any, ...]]
) -> dict[str, torch.export.ExportedProgram]:
    """Exports methods of one module or of several, named `forward` or otherwise."""
    return {
        name: torch.export.export(as_forward(modules[name], name), args)
        for name, args in examples.items()
    }
