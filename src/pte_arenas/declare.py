"""What the user declares: arenas and entry points."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from pte_arenas.errors import ArenaError
from pte_arenas.layout import Lifetime


@dataclass(frozen=True)
class Arena:
    """A named block of memory that the program owns and that methods share.

    Attributes:
        name: Unique within the program.
        buffers: Fully qualified names of the buffers it holds, or glob patterns over them
            (`*` also matches dots). None: every buffer that some method mutates and more than
            one method touches.
        lifetime: `state`, the only lifetime so far: contents live from the creation of a session
            (or a reset) to its end.
        alignment: Alignment of the arena's first byte in bytes; a power of two.
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
        where = f"arena {self.name!r}"
        if not self.name:
            raise ArenaError("arena: expected a name but found an empty string")
        if isinstance(self.buffers, str):
            raise ArenaError(
                f"{where}: expected buffers as a list of names but found the string "
                f"{self.buffers!r}; write [{self.buffers!r}]"
            )
        if self.buffers is not None:
            object.__setattr__(self, "buffers", tuple(self.buffers))
        if self.lifetime != "state":
            raise ArenaError(f"{where}: expected lifetime 'state' but found {self.lifetime!r}")
        if self.initial not in ("values", "zeros"):
            raise ArenaError(
                f"{where}: expected initial 'values' or 'zeros' but found {self.initial!r}"
            )
        if self.device != "cpu":
            raise ArenaError(f"{where}: expected device 'cpu' but found {self.device!r}")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise ArenaError(
                f"{where}: expected an alignment that is a power of two but found {self.alignment}"
            )
        if self.capacity is not None and self.capacity < 0:
            raise ArenaError(
                f"{where}: expected a capacity of at least 0 but found {self.capacity}"
            )


@dataclass(frozen=True)
class EntryPoint:
    """A method of the program: what to call and examples of what it is called with.

    Attributes:
        target: A bound method of a `torch.nn.Module`, or a module (its call is the method).
        args: Example positional arguments, as `torch.export.export` takes them.
        kwargs: Example keyword arguments.
        dynamic_shapes: As `torch.export.export` takes them for a module whose `forward` has the
            signature of `target`.
    """

    target: Callable[..., Any] | torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint that offers the known names closest to `name`."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    if not known:
        return "there are none"
    shown = ", ".join(repr(match) for match in known[:8])
    return f"there are {shown}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def check_arena_names(arenas: Iterable[Arena]) -> None:
    """Refuses two arenas of one name.

    Raises:
        ArenaError: A name is used twice.
    """
    seen: set[str] = set()
    for arena in arenas:
        if arena.name in seen:
            raise ArenaError(f"arena {arena.name!r}: expected a unique name but found it twice")
        seen.add(arena.name)


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
    check_arena_names(arenas)
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
    catch_all = [arena.name for arena in arenas if arena.buffers is None]
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
