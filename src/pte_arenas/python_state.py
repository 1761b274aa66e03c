"""What a module keeps in Python, where export cannot see that a method changes it."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Hashable
from typing import Any

import torch

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_ABSENT = object()


class PythonState:
    """The attributes of a module and of its classes, as far down as they can change.

    Tensors and submodules count by identity: what is in a registered buffer is not Python's, and
    every submodule has a state of its own.

    Args:
        module: The module as it is now.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._kept: list[Any] = []  # while these live, no other object has their id
        self._state = self._attributes(module)

    def changed(self, module: torch.nn.Module) -> list[str]:
        """Returns the names of attributes that are not as they were, and restores class attributes.

        Args:
            module: The same module, later.
        """
        now = PythonState(module)
        names = [
            name
            for name in sorted(self._state.keys() | now._state.keys())
            if self._state.get(name, _ABSENT) != now._state.get(name, _ABSENT)
        ]
        for owner, name, value in self._class_values:
            if name in names and vars(owner).get(name) is not value:
                setattr(owner, name, value)
        return names

    def _attributes(self, module: torch.nn.Module) -> dict[str, Hashable]:
        state: dict[str, Hashable] = {}
        self._class_values: list[tuple[type, str, Any]] = []
        for owner in type(module).__mro__:
            if owner is torch.nn.Module:
                break
            for name, value in vars(owner).items():
                if isinstance(value, (*_PLAIN, list, dict, set, deque)) and name[:2] != "__":
                    state.setdefault(name, self._of(value))
                    self._class_values.append((owner, name, value))
        for name, value in vars(module).items():
            if name in ("_buffers", "_parameters", "_modules"):
                state.update({key: self._of(each) for key, each in value.items()})
            else:
                state[name] = self._of(value)
        return state

    def _of(self, value: Any, above: tuple[int, ...] = ()) -> Hashable:
        """A value that is equal as long as nothing in an object has changed."""
        if isinstance(value, _PLAIN):
            return type(value), repr(value)
        self._kept.append(value)
        if isinstance(value, (torch.Tensor, torch.nn.Module, *_CODE)) or id(value) in above:
            return id(value)
        inside = (*above, id(value))
        parts: Hashable = id(value)
        if isinstance(value, (list, tuple, deque)):
            parts = tuple(self._of(each, inside) for each in value)
        elif isinstance(value, dict):
            parts = tuple((self._of(k, inside), self._of(v, inside)) for k, v in value.items())
        elif isinstance(value, (set, frozenset)):
            parts = frozenset(self._of(each, inside) for each in value)
        elif isinstance(getattr(value, "__dict__", None), dict) and not _is_machinery(value):
            parts = (id(value), self._of(dict(vars(value)), inside))
        return type(value), parts


def _is_machinery(value: object) -> bool:
    """Whether an object is torch's own, such as a graph, which tracing may well change."""
    return type(value).__module__.partition(".")[0] == "torch"
