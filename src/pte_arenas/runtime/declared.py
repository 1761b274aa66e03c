"""What a loaded file declares, shared by a program and its sessions."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pte_arenas.layout import ArenaLayout, ArenaSlot

if TYPE_CHECKING:
    from pte_arenas.runtime import _C


class Declared:
    """Names and arenas of a program.

    Attributes:
        method_names: In the order of the file.
    """

    def __init__(self, program: _C.Program) -> None:
        self._program = program
        self.method_names = tuple(program.method_names())

    @cached_property
    def arenas(self) -> dict[str, ArenaLayout]:
        """Arenas by name; made when they are first asked for, since slots may be many."""
        arenas = (
            ArenaLayout(**{**arena, "slots": tuple(ArenaSlot(**slot) for slot in arena["slots"])})
            for arena in self._program.arenas()
        )
        return {arena.name: arena for arena in arenas}
