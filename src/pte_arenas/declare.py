"""What the user declares: arenas and entry points."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from pte_arenas.errors import ArenaError
from pte_arenas.layout import DeviceType, Lifetime
from pte_arenas.names import nearest

_DEVICE = re.compile(r"cpu|cuda(:[0-9]+)?")
_LARGEST_ALIGNMENT = 1 << 31  # schema/program_arenas.fbs: ProgramArena.alignment is a uint
_LARGEST_INDEX = 127  # schema/program_arenas.fbs: ProgramArena.device_index is a byte


@dataclass(frozen=True)
class Arena:
    """A named block of memory that the program owns and that methods share.

    Attributes:
        name: Unique within the program.
        buffers: Fully qualified names of the buffers it holds, or glob patterns over them
            (`*` also matches dots). None: every buffer that some method mutates and more than
            one method touches.
        lifetime: `state`: contents live from the creation of a session (or a reset) to its end.
            `scratch`: no buffers, but what methods compute on the way to their results; contents
            mean nothing between executions, and the arena is as large as the largest method's.
        alignment: Alignment of the arena's first byte in bytes; a power of two.
        device: Where the memory is: `cpu`, or `cuda` with or without an index, such as `cuda:1`.
            Only delegates of that device may touch the buffers of a state arena on a device.
        capacity: Largest size in bytes that the arena may take; None for no limit.
        initial: `values` starts each slot with the buffer's values at the time of the export,
            `zeros` with zeros (nothing is stored in the file).

    Raises:
        ArenaError: A value is out of range, or `buffers` is a lone string.
    """

    name: str
    buffers: Sequence[str] | None = None
    lifetime: Lifetime = "state"
    alignment: int = 64
    device: str = "cpu"
    capacity: int | None = None
    initial: Literal["values", "zeros"] = "values"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArenaError(f"arena: expected a name but found {self.name!r}")
        where = f"arena {self.name!r}"
        self._check_buffers(where)
        self._check_kind(where)
        self._check_sizes(where)

    def _check_buffers(self, where: str) -> None:
        if isinstance(self.buffers, str):
            raise ArenaError(
                f"{where}: expected buffers as a list of names but found the string "
                f"{self.buffers!r}; write [{self.buffers!r}]"
            )
        if self.buffers is not None and not isinstance(self.buffers, Iterable):
            raise ArenaError(
                f"{where}: expected buffers as a list of names but found {self.buffers!r}"
            )
        if self.buffers is not None:
            object.__setattr__(self, "buffers", tuple(self.buffers))
            for pattern in self.buffers:
                if not isinstance(pattern, str):
                    raise ArenaError(
                        f"{where}: expected buffers as a list of names but found {pattern!r} in it"
                    )

    def _check_kind(self, where: str) -> None:
        if self.lifetime not in get_args(Lifetime):
            raise ArenaError(
                f"{where}: expected lifetime 'state' or 'scratch' but found {self.lifetime!r}"
            )
        if self.lifetime == "scratch":
            self._check_scratch(where)
        if self.initial not in ("values", "zeros"):
            raise ArenaError(
                f"{where}: expected initial 'values' or 'zeros' but found {self.initial!r}"
            )
        named = isinstance(self.device, str) and _DEVICE.fullmatch(self.device)
        if not named or self.device_index > _LARGEST_INDEX:
            raise ArenaError(
                f"{where}: expected a device such as 'cpu', 'cuda' or 'cuda:1' but found "
                f"{self.device!r}"
            )

    def _check_sizes(self, where: str) -> None:
        alignment = self.alignment if _is_int(self.alignment) else 0
        if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
            raise ArenaError(
                f"{where}: expected an alignment that is a power of two up to "
                f"{_LARGEST_ALIGNMENT} but found {self.alignment!r}"
            )
        if self.capacity is not None and (not _is_int(self.capacity) or self.capacity < 0):
            raise ArenaError(
                f"{where}: expected a capacity of at least 0 but found {self.capacity!r}"
            )

    def _check_scratch(self, where: str) -> None:
        if self.buffers is not None:
            raise ArenaError(
                f"{where}: expected no buffers in a scratch arena but found "
                f"{list(self.buffers)}; state belongs in an arena with lifetime 'state'"
            )
        if self.initial != "values":
            raise ArenaError(
                f"{where}: expected no initial values in a scratch arena but found initial="
                f"{self.initial!r}; its contents mean nothing when a method begins"
            )

    @property
    def device_type(self) -> DeviceType:
        """Kind of the device."""
        return "cuda" if self.device.startswith("cuda") else "cpu"

    @property
    def device_index(self) -> int:
        """Which device of that kind."""
        return int(self.device.partition(":")[2] or 0)


@dataclass(frozen=True)
class EntryPoint:
    """A method of the program: what to call and examples of what it is called with.

    Attributes:
        target: A bound method of a `torch.nn.Module`, or a module (its call is the method).
        args: Example positional arguments, as `torch.export.export` takes them.
        kwargs: Example keyword arguments.
        dynamic_shapes: As `torch.export.export` takes them for a module whose `forward` has the
            signature of `target`.

    Raises:
        ArenaError: `args` is no tuple or list, or `kwargs` no mapping.
    """

    target: Callable[..., Any] | torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.args, (tuple, list)):
            raise ArenaError(
                f"entry point: expected args as a tuple but found {type(self.args).__name__}; for "
                f"one argument write (x,)"
            )
        object.__setattr__(self, "args", tuple(self.args))
        if not isinstance(self.kwargs, Mapping):
            raise ArenaError(
                f"entry point: expected kwargs as a dict but found {type(self.kwargs).__name__}"
            )


def check_declarations(entry_points: object, arenas: object) -> None:
    """Refuses what can be no declaration at all.

    Raises:
        ArenaError: There is no entry point, a method has no name, or an arena is something else.
    """
    if not isinstance(entry_points, Mapping) or not entry_points:
        raise ArenaError("expected at least one entry point but found none")
    for name in entry_points:
        if not isinstance(name, str) or not name:
            raise ArenaError(f"expected the name of a method but found {name!r}")
    if isinstance(arenas, (Arena, str)) or not isinstance(arenas, Iterable):
        raise ArenaError(f"expected a list of arenas but found {arenas!r}")
    for arena in arenas:
        if not isinstance(arena, Arena):
            raise ArenaError(f"expected arenas but found {arena!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_arenas(arenas: Iterable[Arena]) -> None:
    """Refuses arenas that cannot be in one program.

    Raises:
        ArenaError: A name is used twice, or a device has two scratch arenas.
    """
    seen: set[str] = set()
    scratch: dict[tuple[str, int], str] = {}
    for arena in arenas:
        if arena.name in seen:
            raise ArenaError(f"arena {arena.name!r}: expected a unique name but found it twice")
        seen.add(arena.name)
        if arena.lifetime == "scratch":
            other = scratch.setdefault((arena.device_type, arena.device_index), arena.name)
            if other != arena.name:
                raise ArenaError(
                    f"arena {arena.name!r}: expected one scratch arena on {arena.device} but found "
                    f"{other!r} there; activations of all methods fit in one"
                )


def assign_buffers(
    arenas: Sequence[Arena], names: Mapping[str, str], shared: Sequence[str]
) -> dict[str, list[str]]:
    """Decides which buffer lies in which arena.

    Args:
        arenas: The declared arenas.
        names: Every name of every buffer, in the order of registration, and the name of its slot:
            a buffer that is registered under several names is one slot.
        shared: Names of the slots that an arena without patterns takes: those that some method
            mutates and more than one method touches.

    Returns:
        The names of the slots of each arena by its name, in the order of registration.

    Raises:
        ArenaError: A pattern matches nothing, a buffer lies in two arenas, or several arenas
            have no patterns.
    """
    check_arenas(arenas)
    owner: dict[str, str] = {}
    for arena in arenas:
        for pattern in arena.buffers or ():
            matches = [slot for name, slot in names.items() if fnmatch.fnmatchcase(name, pattern)]
            if not matches:
                raise ArenaError(
                    f"arena {arena.name!r}: expected a buffer that matches {pattern!r} but found "
                    f"none; {nearest(pattern, names)}"
                )
            for slot in matches:
                if owner.setdefault(slot, arena.name) != arena.name:
                    raise ArenaError(
                        f"buffer {slot!r}: expected to be in one arena but found it in "
                        f"{owner[slot]!r} and {arena.name!r}"
                    )
    catch_all = [
        arena.name for arena in arenas if arena.buffers is None and arena.lifetime == "state"
    ]
    if len(catch_all) > 1:
        raise ArenaError(
            "expected at most one arena without buffers=[...] but found "
            + " and ".join(repr(name) for name in catch_all)
        )
    if catch_all:
        for slot in shared:
            owner.setdefault(slot, catch_all[0])
    slots = dict.fromkeys(names.values())
    return {
        arena.name: [slot for slot in slots if owner.get(slot) == arena.name] for arena in arenas
    }
