"""A loaded program: its methods, its arenas, and the sessions over it."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pte_arenas.errors import ArenaError
from pte_arenas.runtime import _C
from pte_arenas.runtime.declared import Declared
from pte_arenas.runtime.names import check_name, check_type
from pte_arenas.runtime.session import Session

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

    from pte_arenas.layout import ArenaLayout


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""Where a program comes from: a path, its bytes, or a file that is open for reading bytes."""

DataPath = str | os.PathLike[str]


def load_program(
    data: Source,
    *,
    shared_memory_ids: Sequence[int] | None = None,
    data_path: DataPath | Sequence[DataPath] | None = None,
    load_mode: _C.LoadMode = _C.LoadMode.Mmap,
    verification: _C.Verification = _C.Verification.InternalConsistency,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> Program:
    """Loads and checks a program; allocates no arena.

    Args:
        data: Path of a `.pte` file, which must not change while the program is in use, or the bytes
            of one, or an open file.
        shared_memory_ids: Of a file without arenas the memory id that its methods share: `(2,)` for
            one that was exported with `share_mutable_buffers=True`, which is then adopted in
            memory (see docs/compatibility.md), or `()` if each method has its own memory. Needed
            where the file looks either way.
        data_path: Paths of `.ptd` files with data that the program keeps outside.
        load_mode: How the program's file and the data files come into memory.
        verification: What ExecuTorch verifies besides the rules of docs/checks.md.
        enable_etdump: Whether the default session logs its events; see
            `Program.write_etdump_result_to_file`.
        debug_buffer_size: Room for the values of all tensors in that log, in bytes.

    Raises:
        ArenaError: The file does not tell whether its methods share memory, or they cannot share
            what `shared_memory_ids` says.
        InvalidProgramError: The program breaks a rule of docs/checks.md; or ExecuTorch, which
            checks more than that, refuses it: then `where` is `program`, the message names its
            error and the log says more.
        OSError: A file cannot be read.
    """
    source = _checked(data)
    is_unshared = shared_memory_ids is not None
    if isinstance(shared_memory_ids, int):
        raise TypeError(f"shared_memory_ids: expected () or (2,) but found {shared_memory_ids}")
    check_type("load_mode", load_mode, _C.LoadMode)
    check_type("verification", verification, _C.Verification)
    if shared_memory_ids:
        if not isinstance(source, bytes):
            source = Path(source)
        # Late, since it imports what imports this package.
        from pte_arenas.adopter import adopted  # noqa: PLC0415

        source = b"".join(adopted(source, _only(shared_memory_ids)))
    data_files = [os.fsencode(path) for path in _paths(data_path)]
    options = (data_files, load_mode, is_unshared, verification)
    program = (
        _C.Program.from_bytes(source, *options)
        if isinstance(source, bytes)
        else _C.Program.from_file(os.fsencode(source), *options)
    )
    return Program(program, debug_buffer_size if enable_etdump else None)


def _checked(data: Source) -> bytes | str | os.PathLike[str]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, (str, os.PathLike)):
        with Path(data).open("rb"):  # for Python's own errors
            return data
    if hasattr(data, "read"):
        return bytes(data.read())
    raise TypeError(f"expected a path, bytes or a file but found {type(data).__name__}")


def _paths(data_path: DataPath | Sequence[DataPath] | None) -> list[DataPath]:
    if data_path is None:
        return []
    paths = [data_path] if isinstance(data_path, (str, os.PathLike)) else list(data_path)
    for path in paths:
        with Path(path).open("rb"):
            pass
    return paths


def _only(shared_memory_ids: Sequence[int]) -> int:
    memory_id, *others = shared_memory_ids
    if others:
        found = tuple(shared_memory_ids)
        raise ArenaError(
            f"shared_memory_ids: expected () or one memory id but found {found}; "
            "export again with pte_arenas.export, which has any number of arenas"
        )
    return memory_id


class Program:
    """A program: immutable, and shared by its sessions. Made by `load_program`."""

    def __init__(self, program: _C.Program, debug_buffer_size: int | None = None) -> None:
        self._program = program
        self._declared = Declared(program)
        self._debug_buffer_size = debug_buffer_size
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
        backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
        event_tracer: bool = False,
        debug_buffer_size: int = 0,
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
            backend_options: Options for the delegates of a backend, by its name and theirs. Those
                for `XnnpackBackend` replace `{"weight_cache_enabled": True}`, without which each
                load of a method copies its weights. Delegates ignore options they do not know.
            event_tracer: Whether the session logs its events; see `Session.write_etdump`.
            debug_buffer_size: Room for the values of all tensors in that log, in bytes.

        Raises:
            ArenaError: There is no such arena or backend, memory does not fit, or `scratch_from` is
                of another program.
            InvalidProgramError: An initial value cannot be read from the file.
            MemoryError: There is no memory for an arena.
            RuntimeError: Nothing provides memory on the device of an arena.
            TypeError, ValueError: What is borrowed is no writable contiguous memory, or an option
                has no value that delegates take.
        """
        if not isinstance(arenas, (Mapping, type(None))):
            raise TypeError(
                f"arenas: expected a dict of memory by name but found {type(arenas).__name__}"
            )
        if scratch_from is not None:
            check_type("scratch_from", scratch_from, Session)
        borrowed = dict(arenas or {})
        for name in borrowed:
            check_name("an arena", name, self._declared.arenas)
        if keep and not borrowed:
            raise ArenaError("expected arenas to keep but found none: pass them as arenas={...}")
        if debug_buffer_size and not event_tracer:
            raise ArenaError("debug_buffer_size: expected event_tracer=True as well")
        for name, values in (backend_options or {}).items():
            if not isinstance(values, Mapping):
                raise TypeError(
                    f"backend_options[{name!r}]: expected a dict of options but found "
                    f"{type(values).__name__}"
                )
        options = {name: dict(values) for name, values in (backend_options or {}).items()}
        for name in options:
            check_name("a backend", name, _C.backend_names())
        shared = None if scratch_from is None else scratch_from._session  # noqa: SLF001
        size = debug_buffer_size if event_tracer else None
        session = self._program.session(borrowed, keep, shared, options, size)
        return Session(session, self._declared)

    def load_method(self, name: str) -> _C.Method:
        """Loads a method of the program's default session, which all such calls share.

        Raises:
            ArenaError: The program has no such method.
        """
        check_name("a method", name, self._declared.method_names)
        return self._default_session().load_method(name)

    def write_etdump_result_to_file(
        self, etdump_path: str | os.PathLike[str], debug_buffer_path: str | os.PathLike[str]
    ) -> None:
        """Writes what the default session logged; see `Session.write_etdump`.

        The second file is written only if the program was loaded with a `debug_buffer_size`.
        """
        with_values = debug_buffer_path if self._debug_buffer_size else None
        self._default_session().write_etdump(etdump_path, with_values)

    def _default_session(self) -> Session:
        with self._lock:
            if self._default is None:
                self._default = self.session(
                    event_tracer=self._debug_buffer_size is not None,
                    debug_buffer_size=self._debug_buffer_size or 0,
                )
            return self._default

    def __repr__(self) -> str:
        arenas = ", ".join(arena.name for arena in self.arenas)
        return f"Program(methods=[{', '.join(self._declared.method_names)}], arenas=[{arenas}])"
