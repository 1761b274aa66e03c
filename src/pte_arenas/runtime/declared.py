"""What a loaded file declares, shared by a program and its sessions."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

from pte_arenas.layout import ArenaLayout, ArenaSlot

if TYPE_CHECKING:
    from pte_arenas.runtime import _C


_STEP = 8 << 20  # bytes hashed at once


class Declared:
    """Names, arenas and hash of a program.

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

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the program's file, in hexadecimal.

        What `sha256sum` says of it; of all of it, since state of other weights is another
        program's. Takes time in proportion to the file, and so is made when it is first asked for.
        """
        digest = hashlib.sha256()
        nbytes = self._program.nbytes()
        for offset in range(0, nbytes, _STEP):
            digest.update(self._program.read(offset, min(_STEP, nbytes - offset)))
        return digest.hexdigest()

    def blank_snapshot(self) -> _C.Snapshot:
        """A snapshot of the program that is all zeros."""
        return self._program.blank_snapshot()
