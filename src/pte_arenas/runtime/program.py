"""A loaded program: its methods, its arenas, and the sessions over it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pte_arenas.errors import ArenaError
from pte_arenas.runtime import _C
from pte_arenas.runtime.declared import Declared
from pte_arenas.runtime.names import check_name
from pte_arenas.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from typing_extensions import Buffer

    from pte_arenas.layout import ArenaLayout


def load_program(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Program:
    """Loads and checks a program; allocates no arena.

    Args:
        source: Path of a `.pte` file, which is mapped and must not change while the program is in
            use, or the bytes of one.

    Raises:
        InvalidProgramError: The program breaks a rule of docs/checks.md; or ExecuTorch, which
            checks more than that, refuses it: then `where` is `program`, the message names its
            error and the log says more.
        OSError: The file cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Program(_C.Program.from_bytes(bytes(source)))
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"expected a path or bytes but found {type(source).__name__}")
    with Path(source).open("rb"):  # for Python's own errors
        return Program(_C.Program.from_file(os.fsencode(source)))


class Program:
    """A program: immutable, and shared by its sessions. Made by `load_program`."""

    def __init__(self, program: _C.Program) -> None:
        self._program = program
        self._declared = Declared(program)
        self._default: Session | None = None
        self._lock = threading.Lock()

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return set(self._declared.method_names)

    @property
    def arenas(self) -> tuple[ArenaLayout, ...]:
        """The arenas that the file declares, with their slots."""
        return tuple(self._declared.arenas.values())

    def metadata(self, method_name: str) -> _C.MethodMeta:
        """What the program says of a method, without loading it.

        Raises:
            ArenaError: The program has no such method.
        """
        check_name("a method", method_name, self._declared.method_names)
        return self._program.metadata(method_name)

    def session(
        self,
        arenas: Mapping[str, Buffer | torch.Tensor] | None = None,
        *,
        keep: bool = False,
        scratch_from: Session | None = None,
    ) -> Session:
        """Allocates or borrows the arenas and gives them their initial values.

        Sessions are independent of each other and may run in parallel, except where they share
        memory.

        Args:
            arenas: Memory to use in place of an arena's own, by the name of the arena: contiguous
                CPU tensors or writable buffers, at least as large and as aligned as the arena. The
                session keeps them alive.
            keep: Whether what is in the borrowed memory is the arenas' state, as a session left it
                there, instead of being overwritten with initial values.
            scratch_from: A session of this program, to share scratch arenas with. Calls of the two
                wait for each other.

        Raises:
            ArenaError: There is no such arena, its memory does not fit, or `scratch_from` is of
                another program.
            InvalidProgramError: An initial value cannot be read from the file.
            MemoryError: There is no memory for an arena.
            RuntimeError: Nothing provides memory on the device of an arena.
            TypeError, ValueError: What is borrowed is no writable contiguous memory.
        """
        borrowed = dict(arenas or {})
        for name in borrowed:
            check_name("an arena", name, self._declared.arenas)
        if keep and not borrowed:
            raise ArenaError("expected arenas to keep but found none: pass them as arenas={...}")
        shared = None if scratch_from is None else scratch_from._session  # noqa: SLF001
        return Session(self._program.session(borrowed, keep, shared), self._declared)

    def load_method(self, name: str) -> _C.Method:
        """Loads a method of the program's default session, which all such calls share.

        Raises:
            ArenaError: The program has no such method.
        """
        check_name("a method", name, self._declared.method_names)
        with self._lock:
            if self._default is None:
                self._default = self.session()
        return self._default.load_method(name)

    def __repr__(self) -> str:
        arenas = ", ".join(arena.name for arena in self.arenas)
        return f"Program(methods=[{', '.join(self._declared.method_names)}], arenas=[{arenas}])"
