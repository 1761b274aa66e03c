"""A session: one set of a program's arenas, and the methods loaded over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pte_arenas.errors import ArenaError
from pte_arenas.files import replacing
from pte_arenas.runtime import _C
from pte_arenas.runtime.names import check_name, check_type
from pte_arenas.runtime.saved_state import load_state, save_state
from pte_arenas.runtime.views import ArenaView

if TYPE_CHECKING:
    from pte_arenas.layout import ArenaLayout
    from pte_arenas.runtime.declared import Declared


class Session:
    """State and methods. Made by `Program.session`.

    State lives from here, or from `reset`, to the end of the session; loading, unloading and
    reloading a method never changes it. Calls from several threads wait for each other.
    """

    def __init__(self, session: _C.Session, declared: Declared) -> None:
        self._session = session
        self._declared = declared

    def load_method(self, name: str) -> _C.Method:
        """Loads a method, unless it is loaded.

        Raises:
            ArenaError: The program has no such method.
            InvalidProgramError: ExecuTorch finds it damaged; the log says more.
            RuntimeError: ExecuTorch cannot load it; the log says more.
        """
        check_name("a method", name, self._declared.method_names)
        return self._session.load_method(name)

    def unload_method(self, name: str) -> None:
        """Frees a method and the memory that is its own; arenas stay as they are.

        Mutable buffers that no arena holds are such memory: the next load starts them again from
        their initial values.

        Raises:
            ArenaError: The program has no such method.
        """
        check_name("a method", name, self._declared.method_names)
        self._session.unload_method(name)

    def execute(
        self, name: str, inputs: Sequence[Any] = (), *, copy_outputs: bool = True
    ) -> list[Any]:
        """Runs a method, and loads it if need be.

        Args:
            name: Name of the method.
            inputs: One value for each input.
            copy_outputs: Whether outputs are the caller's own. Else those that the program has
                memory for are views of it: the memory lives as long as the view, even if the method
                is unloaded and the session dropped, but the values change at the next call of the
                method, and where an output is state whenever that changes. Writing to such a view
                changes the state.

        Raises:
            ArenaError: The program has no such method.
            RuntimeError: ExecuTorch cannot load or run it; the log says more.
            TypeError, ValueError: An input is not what the method takes, or the method changes it
                and it cannot be changed.
        """
        check_name("a method", name, self._declared.method_names)
        return self._session.execute(name, inputs, copy_outputs)

    def write_etdump(
        self, path: str | os.PathLike[str], debug_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Writes what was loaded and executed since the last time, for `executorch.devtools`.

        Args:
            path: The ETDump file, which `Inspector` reads; replaced only by a complete one.
            debug_path: Where to write the values of tensors, which the ETDump points into.

        Raises:
            ArenaError: The session logs no events, there were none, or `debug_buffer_size` was too
                small for the values.
            OSError: A file cannot be written.
        """
        logged = self._session.take_etdump()
        if logged is None:
            raise ArenaError(
                "expected events to write but found none: give event_tracer=True when the session "
                "is made and execute a method"
            )
        etdump, values, is_cut = logged
        if is_cut:
            raise ArenaError(
                "debug_buffer_size: expected room for the values of all tensors but found that "
                f"{len(values)} bytes filled it: give more"
            )
        if debug_path is not None and not values:
            raise ArenaError(
                "debug_path: expected values to write but found none: give debug_buffer_size when "
                "the session is made"
            )
        for target, content in ((path, etdump), (debug_path, values)):
            if target is not None:
                with replacing(Path(target)) as sibling:
                    sibling.write_bytes(content)

    def arena(self, name: str) -> ArenaView:
        """The slots of an arena by their fully qualified names.

        Raises:
            ArenaError: The program has no such arena.
        """
        check_name("an arena", name, self._declared.arenas)
        return ArenaView(self._session, self._declared.arenas[name])

    def reset(self, arena: str | None = None, slot: str | None = None) -> None:
        """Gives all arenas, one arena or one slot their initial values again.

        Raises:
            ArenaError: There is no such arena or slot.
        """
        if arena is None:
            if slot is not None:
                raise ArenaError(f"expected the arena of slot {slot!r} as well")
        else:
            check_name("an arena", arena, self._declared.arenas)
            if slot is not None:
                names = [known.fqn for known in self._declared.arenas[arena].slots]
                check_name(f"a slot of arena '{arena}'", slot, names)
        self._session.reset(arena, slot)

    def snapshot(self, reuse: _C.Snapshot | None = None) -> _C.Snapshot:
        """Copies the state; scratch arenas are no part of it.

        Args:
            reuse: A snapshot that is not needed any more: its memory is used again, it becomes the
                new one.

        Raises:
            MemoryError: There is no memory for it.
        """
        if reuse is not None:
            check_type("reuse", reuse, _C.Snapshot)
        return self._session.snapshot(reuse)

    def restore(self, snapshot: _C.Snapshot, arenas: Sequence[str] | None = None) -> None:
        """Makes the state what it was at a snapshot.

        Args:
            snapshot: Of any session of the same loaded program.
            arenas: Names of the state arenas to restore, if not all.

        Raises:
            ArenaError: There is no such state arena, or the snapshot is of another program.
        """
        check_type("snapshot", snapshot, _C.Snapshot)
        self._session.restore(snapshot, [arena.name for arena in self._state_arenas(arenas)])

    def fork(self, *, copy_on_write: bool = False) -> Session:
        """Makes a session of the same program whose state equals this one's.

        From then on they are independent. The new session loads methods afresh: a mutable buffer
        that no arena holds is private to a method and starts from its initial value there.

        Args:
            copy_on_write: Copies a page only when one of the sessions writes it, where the system
                can (Linux). Forks then cost little and the first writes after them more.

        Raises:
            MemoryError: There is no memory for the arenas.
        """
        return Session(self._session.fork(copy_on_write), self._declared)

    def save(self, path: str | os.PathLike[str], arenas: Sequence[str] | None = None) -> None:
        """Writes the state to a `.safetensors` file, one tensor per slot; see docs/state.md.

        The file is written beside `path` and takes its place when it is on the disk: `path` always
        is a whole file, the old one or the new one.

        Args:
            path: Of the file to make or to replace.
            arenas: Names of the state arenas to save, if not all.

        Raises:
            ArenaError: There is no such state arena, or a slot has a dtype that such files do not
                know.
            OSError: The file cannot be written.
        """
        save_state(self._session, self._declared, Path(path), self._state_arenas(arenas))

    def load(
        self,
        path: str | os.PathLike[str],
        arenas: Sequence[str] | None = None,
        *,
        allow_other_program: bool = False,
    ) -> None:
        """Makes the state what `save` wrote. Where it raises, nothing has changed.

        Args:
            path: Of the file.
            arenas: Names of the state arenas to load, if not all; the file may have others.
            allow_other_program: Whether the file may be of another program, such as one with other
                weights or another plan. Names, dtypes, sizes and dim orders of slots must fit all
                the same.

        Raises:
            ArenaError: There is no such state arena.
            StateFileError: The file does not fit; each way has a class of its own.
            OSError: The file cannot be read.
        """
        load_state(
            self._session,
            self._declared,
            Path(path),
            self._state_arenas(arenas),
            allow_other_program=allow_other_program,
        )

    def _state_arenas(self, names: Sequence[str] | None) -> list[ArenaLayout]:
        known = {
            name: arena
            for name, arena in self._declared.arenas.items()
            if arena.lifetime == "state"
        }
        if names is None:
            return list(known.values())
        if isinstance(names, str):
            raise TypeError(f"expected a list of names of arenas but found the str {names!r}")
        if not names:
            raise ValueError("expected names of arenas, or None for all of them, but found []")
        for name in names:
            check_name("a state arena", name, known)
        return [known[name] for name in dict.fromkeys(names)]

    def __repr__(self) -> str:
        loaded = ", ".join(self._session.loaded_methods())
        return f"Session(loaded=[{loaded}], arenas=[{', '.join(self._declared.arenas)}])"
