"""Which buffers of the user's modules are one piece of state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pte_arenas.errors import ArenaError
from pte_arenas.views import View, view_steps


@dataclass
class Buffer:
    """One piece of state: a tensor, whatever the number of its names.

    Attributes:
        name: The first name that it was registered under.
        base: The tensor that holds all of it.
        names: By root module (its index), the name of the base in that root.
        ties: By root module and name, how the other registered tensors lie in the base; None for
            the whole of it.
        tensors: The registered tensors that are the whole of it.
        conflict: Why the registered tensors cannot be one piece of state, if they cannot.
    """

    name: str
    base: torch.Tensor
    names: dict[int, str] = field(default_factory=dict)
    ties: dict[tuple[int, str], View | None] = field(default_factory=dict)
    tensors: list[torch.Tensor] = field(default_factory=list)
    conflict: str | None = None

    @cached_property
    def values(self) -> torch.Tensor:
        """The values when this is first asked for: a contiguous copy."""
        return self.base.detach().clone(memory_format=torch.contiguous_format)


class Buffers:
    """Every buffer of some root modules, tied ones as one.

    Args:
        roots: The modules that methods are called on, in the order of the entry points.
    """

    def __init__(self, roots: Iterable[torch.nn.Module]) -> None:
        members = [
            (index, name, tensor)
            for index, root in enumerate(roots)
            for name, tensor in root.named_buffers(remove_duplicate=False)
        ]
        for _, name, tensor in members:
            _check_dense(name, tensor)
        self.all = [_tie(group) for group in _groups(members)]
        self._of_name: dict[tuple[int, str], Buffer] = {}
        for buffer in self.all:
            for key in [*buffer.names.items(), *buffer.ties]:
                self._of_name[key] = buffer
        self._order = [(index, name) for index, name, _ in members]

    def of(self, root: int, name: str) -> Buffer:
        """Returns the buffer that a root module (by its index) has under a name."""
        return self._of_name[root, name]

    def names(self) -> dict[str, str]:
        """Returns every name in the order of registration, with the first name of its buffer.

        A name that different roots give to different buffers stands for the first of them.
        """
        names: dict[str, str] = {}
        for key in self._order:
            names.setdefault(key[1], self._of_name[key].name)
        return names

    def strided(self) -> dict[int, torch.Tensor]:
        """Returns contiguous values for every registered tensor that has other strides, by its id.

        Kernels refuse operands in different memory formats, so state is kept contiguous.
        """
        return {
            id(tensor): buffer.values
            for buffer in self.all
            if not buffer.base.is_contiguous()
            for tensor in buffer.tensors
        }

    def named(self, name: str) -> Buffer:
        """Returns the one buffer whose first name this is.

        Raises:
            ArenaError: Root modules mean different tensors by it, or tensors that share its memory
                cannot be one piece of state.
        """
        found = [buffer for buffer in self.all if buffer.name == name]
        if len(found) > 1:
            raise ArenaError(
                f"buffer {name!r}: expected one tensor but found {len(found)} different ones in "
                f"the modules of the entry points; share one tensor between the modules, or "
                f"rename one of the buffers"
            )
        (buffer,) = found
        if buffer.conflict is not None:
            raise ArenaError(buffer.conflict)
        return buffer


def addresses(tensor: torch.Tensor) -> list[int]:
    """Where the memory of a tensor begins, and of those that a wrapper such as torchao's holds."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [at for name in names for at in addresses(getattr(tensor, name))]
    if tensor.layout is not torch.strided or not tensor.numel():
        return []
    return [tensor.untyped_storage().data_ptr()]


def _check_dense(name: str, tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        found = "the meta device" if tensor.device.type == "meta" else f"layout {tensor.layout}"
        raise ArenaError(
            f"buffer {name!r}: expected a dense tensor with values but found {found}; make it one, "
            f"or take it out of the module"
        )


_Member = tuple[int, str, torch.Tensor]


def _groups(members: list[_Member]) -> list[list[_Member]]:
    """Gathers registered tensors that have elements in common, in the order of registration."""
    groups: list[list[_Member]] = []
    by_storage: dict[object, list[list[_Member]]] = {}
    for member in members:
        tensor = member[2]
        address = next(iter(addresses(tensor)), None)
        near = by_storage.setdefault(address or id(tensor), [])
        meeting = [group for group in near if any(_overlap(tensor, other) for _, _, other in group)]
        for group in meeting[1:]:
            meeting[0][:] = [m for m in members if m in meeting[0] or m in group]
            near.remove(group)
            groups.remove(group)
        if meeting:
            meeting[0].append(member)
        else:
            near.append([member])
            groups.append(near[-1])
    return groups


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common."""
    (a, b), (c, d) = _extent(one), _extent(other)
    if one is other or a >= d or c >= b:
        return one is other
    if one.dtype != other.dtype or (one.is_contiguous() and other.is_contiguous()):
        return True
    elements = torch.arange(max(b, d) // one.itemsize)
    return bool(torch.isin(_elements(elements, one), _elements(elements, other)).any())


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end of a tensor in its storage."""
    begin = int(tensor.storage_offset()) * tensor.itemsize
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.itemsize


def _elements(storage: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _tie(members: list[_Member]) -> Buffer:
    """Makes one buffer of all registered tensors that share memory."""
    begin = min(_extent(tensor)[0] for _, _, tensor in members)
    end = max(_extent(tensor)[1] for _, _, tensor in members)
    whole = [tensor for _, _, tensor in members if _extent(tensor) == (begin, end)]
    base = next((tensor for tensor in whole if tensor.is_contiguous()), members[0][2])
    first = next(name for _, name, tensor in members if tensor is base)
    buffer = Buffer(first, base)
    for index, name, tensor in members:
        same = tensor is base or (tensor.dtype == base.dtype and _view(tensor) == _view(base))
        if same:
            buffer.tensors.append(tensor)
        if same and index not in buffer.names:
            buffer.names[index] = name
            continue
        view = _view(tensor)
        part = View(view.sizes, view.strides, view.offset - int(base.storage_offset()))
        buffer.ties[index, name] = None if same else part
        if (
            buffer.conflict is None
            and not same
            and not (
                tensor.dtype == base.dtype
                and base.is_contiguous()
                and _extent(base) == (begin, end)
                and any(root == index and other is base for root, _, other in members)
                and view_steps(tuple(base.shape), part)
            )
        ):
            buffer.conflict = (
                f"buffers {first!r} and {name!r} share memory: expected one of them to be all of "
                f"it, contiguous, and the other a slice of it with the same dtype; register the "
                f"whole tensor as a buffer of the same module, or clone() one of the two"
            )
    return buffer


def _view(tensor: torch.Tensor) -> View:
    return View(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))
