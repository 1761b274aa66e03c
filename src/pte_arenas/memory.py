"""How much memory a program plans, with its arenas and without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MethodMemory:
    """Planned bytes of one method.

    Attributes:
        planned_bytes: Of its own, beside the arenas.
        unshared_bytes: What the memory planning pass gave it, and its own copy of each state arena
            that it binds: what it would plan without sharing.
    """

    planned_bytes: int
    unshared_bytes: int


@dataclass(frozen=True)
class ProgramMemory:
    """Planned bytes of a program; `str` of it is a table.

    Attributes:
        arenas: Bytes of each arena, by name.
        methods: By name.
    """

    arenas: Mapping[str, int]
    methods: Mapping[str, MethodMemory]

    @property
    def planned_bytes(self) -> int:
        """Bytes that the program plans: every method's own, and each arena once."""
        own = sum(method.planned_bytes for method in self.methods.values())
        return own + sum(self.arenas.values())

    @property
    def unshared_bytes(self) -> int:
        """Bytes that it would plan if each method had all of its memory to itself."""
        return sum(method.unshared_bytes for method in self.methods.values())

    def __str__(self) -> str:
        rows = [("", "planned", "if each had its own")]
        rows += [(f"arena {name}", f"{size:,}", "") for name, size in self.arenas.items()]
        rows += [
            (f"method {name}", f"{method.planned_bytes:,}", f"{method.unshared_bytes:,}")
            for name, method in self.methods.items()
        ]
        rows += [("program", f"{self.planned_bytes:,}", f"{self.unshared_bytes:,}")]
        names, *numbers = (max(map(len, column)) for column in zip(*rows, strict=True))
        return "\n".join(
            "  ".join([name.ljust(names), *map(str.rjust, cells, numbers)]).rstrip()
            for name, *cells in rows
        )
