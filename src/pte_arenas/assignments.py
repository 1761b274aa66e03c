"""Assignments to buffers while a method is traced: `self.state = new`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from pte_arenas.dtypes import name_of
from pte_arenas.errors import ArenaError


class Assignments:
    """What a traced method assigns to buffers, made writes to the buffers it began with.

    In eager mode the name then stands for another tensor and the old one lives on in its views;
    in a program the buffer has one place. Written back at the end, with copies of what still
    shows the old tensors, both are the same.

    Args:
        method: Name of the method, for messages.
        module: The module whose method is about to run, with the buffers it begins with.
    """

    def __init__(self, method: str, module: torch.nn.Module) -> None:
        self._method = method
        self._module = module
        self._before = {name: (each, dict(each._buffers)) for name, each in module.named_modules()}
        self._parameters = {
            name: (each, dict(each._parameters)) for name, each in module.named_modules()
        }

    def write_back(self, result: Any) -> Any:
        """Writes assigned values into the old tensors and takes these back.

        Args:
            result: What the method returned.

        Returns:
            The result, with copies of tensors that share memory with an old one.

        Raises:
            ArenaError: A parameter was assigned; or a buffer was deleted, has another dtype or
                shape, or is one tensor with another buffer now.
        """
        self._check_parameters()
        assigned = self._assigned()
        for module, before in self._before.values():
            module._buffers.update(before)
        old_memory = {_memory(old) for _, old, _ in assigned}
        result = pytree.tree_map_only(
            torch.Tensor,
            lambda tensor: tensor.clone() if _memory(tensor) in old_memory else tensor,
            result,
        )
        values = [
            (old, new.clone() if _memory(new) in old_memory else new) for _, old, new in assigned
        ]
        for old, new in values:
            old.copy_(new)
        return result

    def _check_parameters(self) -> None:
        for prefix, (module, before) in self._parameters.items():
            for name, old in before.items():
                if module._parameters.get(name) is not old:
                    fqn = f"{prefix}.{name}" if prefix else name
                    raise ArenaError(
                        f"{self._method}: expected parameters to stay as they are but found that "
                        f"the method assigns {fqn!r}; state must be a buffer: register_buffer "
                        f"instead of a Parameter"
                    )

    def _assigned(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """Returns the names, old and new tensors of buffers that are other tensors now."""
        assigned: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        kept: dict[int, str] = {}
        for prefix, (module, before) in self._before.items():
            for name, old in before.items():
                fqn = f"{prefix}.{name}" if prefix else name
                new = module._buffers.get(name)
                if new is not old:
                    assigned.append((fqn, *self._checked(fqn, old, new)))
                elif old is not None:
                    kept[_memory(old)] = fqn
        for fqn, _, new in assigned:
            other = kept.setdefault(_memory(new), fqn)
            if other != fqn:
                raise ArenaError(
                    f"{self._method}: expected buffers to stay apart but found that the method "
                    f"makes {fqn!r} and {other!r} one tensor; copy instead: self.{fqn}.copy_(...)"
                )
        return assigned

    def _checked(self, fqn: str, old: Any, new: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            raise ArenaError(
                f"{self._method}: expected buffer {fqn!r} to stay a tensor but found that the "
                f"method replaces {_kind(old)} by {_kind(new)}; keep a tensor and write into it"
            )
        if (new.dtype, new.shape) != (old.dtype, old.shape):
            raise ArenaError(
                f"{self._method}: expected buffer {fqn!r} to stay {_kind(old)} but found that the "
                f"method assigns {_kind(new)}; write into the buffer in place instead"
            )
        return old, new


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{name_of(value.dtype)} of sizes {tuple(value.shape)}"
    return "nothing" if value is None else type(value).__name__
