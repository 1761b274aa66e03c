"""Buffers of arenas on devices: who may touch them.

Stock lowering keeps all buffers on the CPU and copies them to a device before every call of a
delegate there, and back behind it. A buffer of an arena on a device lives there: delegates of that
device read it where it is, and write its new value into it where `inplace.py` proves that they can.
No other instruction can reach it but a copy between the CPU and the device that the user wrote.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from executorch.exir import memory
from executorch.exir.schema import DeviceType
from torch.fx import Node

from pte_arenas.delegates import device_of_delegate
from pte_arenas.errors import ArenaError
from pte_arenas.layout import ArenaLayout

_TO_DEVICE = torch.ops.et_copy._h2d_copy.out
_TO_CPU = torch.ops.et_copy._d2h_copy.out
_WRITE = torch.ops.aten.copy_.default


def use_on_device(state: Node, arena: ArenaLayout) -> None:
    """Takes away the copies that stock puts between a buffer and the arena's device, in place.

    Args:
        state: Placeholder of a buffer in the form that memory planning gets, or a view of it.
        arena: Its arena, on a device.
    """
    device = (arena.device_type, arena.device_index)
    spec = state.meta["spec"]
    spec.device, spec.device_index = DeviceType[arena.device_type.upper()], arena.device_index
    for user in list(state.users):
        if user.target is memory.view:
            use_on_device(user, arena)
        elif user.target is _TO_DEVICE and _device(user) == device and _feeds_delegates(user):
            user.replace_all_uses_with(state)
            _erase(user)
        elif user.target is _WRITE and user.args[0] is state:
            copied: Any = user.args[1]
            if copied.target is _TO_CPU and _device(copied.args[0]) == device:
                user.update_arg(1, copied.args[0])
                if not copied.users:
                    _erase(copied)


def check_new_value(method: str, fqn: str, state: Node, arena: ArenaLayout) -> None:
    """Refuses a new value that is not computed on the buffer's device.

    It would be computed in place, by an instruction that cannot reach the place.

    Args:
        method: Name of the method, for messages.
        fqn: Name of the buffer, for messages.
        state: Its placeholder.
        arena: Its arena, on a device.

    Raises:
        ArenaError: Something other than a delegate of the device gives the new value.
    """
    for user in state.users:
        if user.target is _WRITE and _device(user.args[1]) != _device(state):
            _refuse(method, fqn, user, arena)


def check_users(method: str, fqn: str, state: Node, arena: ArenaLayout) -> None:
    """Refuses instructions that cannot reach a buffer on a device.

    Args:
        method: Name of the method, for messages.
        fqn: Name of the buffer, for messages.
        state: Its placeholder.
        arena: Its arena, on a device.

    Raises:
        ArenaError: Something other than a delegate of the device touches the buffer.
    """
    device = (arena.device_type, arena.device_index)
    for user in state.users:
        if user.target is memory.view:
            check_users(method, fqn, user, arena)
        elif device_of_delegate(user) != device and user.target is not _TO_CPU:
            _refuse(method, fqn, user, arena)


def copies_to_devices(method: str, fqn: str, state: Node, arena: ArenaLayout) -> Iterator[str]:
    """Yields a warning for each copy of a buffer on the CPU to a device, made in every call.

    Args:
        method: Name of the method, for messages.
        fqn: Name of the buffer, for messages.
        state: Its placeholder, or a view of it.
        arena: Its arena, on the CPU.

    Raises:
        ArenaError: A delegate takes the buffer for one on its device.
    """
    if state.meta["spec"].device is not DeviceType.CPU:
        raise ArenaError(
            f"method {method!r}: expected buffer {fqn!r} of arena {arena.name!r} on the CPU but "
            f"found that skip_h2d_for_method_inputs puts it on {_name(*_device(state))}; declare "
            f"the arena with device={_name(*_device(state))!r}, or leave that option out"
        )
    for user in state.users:
        if user.target is memory.view:
            yield from copies_to_devices(method, fqn, user, arena)
        elif user.target is _TO_DEVICE:
            user.meta["spec"].const = False  # stock copies that of a buffer that is only read
            where = _name(*_device(user))
            yield (
                f"method {method!r} copies the {state.meta['spec'].nbytes()} bytes of buffer "
                f"{fqn!r} to {where} in every call, since arena {arena.name!r} is on the CPU and a "
                f"delegate there reads it; declare the arena with device={where!r} if only "
                f"delegates of that device touch it"
            )


def _feeds_delegates(copied: Node) -> bool:
    return all(device_of_delegate(user) == _device(copied) for user in copied.users)


def _device(node: Any) -> tuple[str, int]:
    spec = node.meta["spec"]
    return spec.device.name.lower(), spec.device_index


def _name(device_type: str, device_index: int) -> str:
    return device_type if device_type == "cpu" else f"{device_type}:{device_index}"


def _refuse(method: str, fqn: str, user: Node, arena: ArenaLayout) -> NoReturn:
    device = _name(arena.device_type, arena.device_index)
    what, way_out = _instruction(user, device)
    raise ArenaError(
        f"method {method!r}: expected only delegates of {device} to touch buffer {fqn!r} of arena "
        f"{arena.name!r} there but found that {what}; {way_out}, or declare the arena with "
        f"device='cpu'"
    )


def _instruction(user: Node, device: str) -> tuple[str, str]:
    """What a node does, in words that find it in the graph, and what to do about it."""
    lower = f"lower that to {device} as well"
    if user.op == "output":
        return "the method returns it", "return a value computed from it"
    if user.target is _WRITE:
        source: Any = user.args[1]
        call = source.args[0] if source.target is operator.getitem else source
        if device_of_delegate(call) is not None:
            what = (
                f"{user.name} (aten::copy_) writes it: the delegate {call.name} gives its new "
                f"value, but not in place"
            )
            return what, "let no delegate read it in or behind the one that gives its new value"
        return f"{user.name} (aten::copy_) writes the result of {source.name} to it", lower
    if user.target is _TO_DEVICE:
        return f"{user.name} copies it to {_name(*_device(user))}", lower
    other = device_of_delegate(user)
    if other is not None:
        return f"{user.name}, a delegate of {_name(*other)}, reads it", lower
    return f"{user.name} ({_op(user)}) reads it", lower


def _op(node: Node) -> str:
    name = getattr(node.target, "name", None)
    return name() if callable(name) else str(node.target)


def _erase(node: Node) -> None:
    """Erases a copy and the allocation of its result."""
    out: Any = node.kwargs["out"]
    node.graph.erase_node(node)
    if not out.users:
        out.graph.erase_node(out)
