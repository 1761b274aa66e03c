"""Saves the state of a session to a file and loads it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pte_arenas.errors import (
    DamagedStateError,
    MissingSlotError,
    OtherProgramError,
    SlotMismatchError,
    StateFileError,
    UnknownSlotError,
)
from pte_arenas.files import replacing
from pte_arenas.rules.tensors import escaped, listed, quoted
from pte_arenas.runtime.state_file import (
    StateFile,
    StoredTensor,
    encode_head,
    in_file_order,
    read_head,
)

if TYPE_CHECKING:
    from pte_arenas.layout import ArenaLayout, ArenaSlot
    from pte_arenas.runtime import _C
    from pte_arenas.runtime.declared import Declared


def save_state(
    session: _C.Session, declared: Declared, path: Path, arenas: Sequence[ArenaLayout]
) -> None:
    """Writes the slots of arenas: the file is there whole and on the disk, or as it was before."""
    arena_of = {slot.fqn: arena.name for arena in arenas for slot in arena.slots}
    slots = in_file_order(slot for arena in arenas for slot in arena.slots)
    head = encode_head(slots, declared.sha256)
    names = [(arena_of[slot.fqn], slot.fqn) for slot in slots]
    with replacing(path, durable=True) as sibling, sibling.open("wb", buffering=0) as file:
        session.write(file.fileno(), str(path), head, names)


def load_state(
    session: _C.Session,
    declared: Declared,
    path: Path,
    arenas: Sequence[ArenaLayout],
    *,
    allow_other_program: bool,
) -> None:
    """Checks a file, reads it into memory of its own, and only then changes the state."""
    shown = escaped(str(path))
    with path.open("rb") as file:
        found = read_head(file, shown)
        if not allow_other_program:
            _check_program(found, declared, shown)
        _check_slots(found, declared, arenas, shown)
        places = [
            (arena.name, slot.fqn, found.tensors[slot.fqn].offset)
            for arena in arenas
            for slot in arena.slots
        ]
        state = declared.blank_snapshot()
        if not state.read(file.fileno(), str(path), places):
            raise DamagedStateError(f"{shown}: expected its bytes but found that it became shorter")
    _check_bools(state, arenas, shown)
    session.restore(state, [arena.name for arena in arenas])


def _check_bools(state: _C.Snapshot, arenas: Sequence[ArenaLayout], path: str) -> None:
    """Kernels may do anything with a bool that is neither 0 nor 1."""
    for arena in arenas:
        for slot in (slot for slot in arena.slots if slot.dtype == "bool"):
            largest = state.largest_byte(arena.name, slot.fqn)
            if largest > 1:
                raise DamagedStateError(
                    f"{path}: slot {quoted(slot.fqn)}: expected bools of 0 or 1 but found {largest}"
                )


def _check_program(found: StateFile, declared: Declared, path: str) -> None:
    if found.program_sha256 != declared.sha256:
        raise OtherProgramError(
            f"{path}: expected state of the program with SHA-256 {declared.sha256[:16]}... but "
            f"found state of {quoted(found.program_sha256[:16])}...: allow_other_program=True "
            "loads it where all slots fit"
        )


def _check_slots(
    found: StateFile, declared: Declared, arenas: Sequence[ArenaLayout], path: str
) -> None:
    known = {slot.fqn for arena in declared.arenas.values() for slot in arena.slots}
    for name in found.tensors:
        if name not in known:
            raise UnknownSlotError(
                f"{path}: expected slots of the program but found {quoted(name)}"
            )
    for arena in arenas:
        for slot in arena.slots:
            tensor = found.tensors.get(slot.fqn)
            if tensor is None:
                raise MissingSlotError(
                    f"{path}: expected slot {quoted(slot.fqn)} of arena {quoted(arena.name)} but "
                    "found none: arenas=[...] loads the arenas that the file has"
                )
            _check_slot(tensor, slot, path)


def _check_slot(tensor: StoredTensor, slot: ArenaSlot, path: str) -> None:
    def refuse(expected: str, found: str) -> StateFileError:
        return SlotMismatchError(
            f"{path}: slot {quoted(slot.fqn)}: expected {expected} but found {found}"
        )

    if tensor.dtype != slot.dtype:
        raise refuse(slot.dtype, tensor.dtype)
    if tensor.sizes != slot.sizes:
        raise refuse(f"sizes {listed(slot.sizes)}", listed(tensor.sizes))
    if tensor.dim_order != slot.dim_order:
        raise refuse(f"dim order {listed(slot.dim_order)}", listed(tensor.dim_order))
