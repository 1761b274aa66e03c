"""Program-scoped memory arenas for ExecuTorch: methods that share named state."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pte_arenas.errors import (
    ArenaError,
    DamagedStateError,
    InvalidProgramError,
    MissingSlotError,
    OtherProgramError,
    SlotMismatchError,
    StateFileError,
    UnknownSlotError,
)

if TYPE_CHECKING:
    from pte_arenas.adopter import adopt
    from pte_arenas.checker import check
    from pte_arenas.declare import Arena, EntryPoint
    from pte_arenas.emitter import ArenaProgramManager, to_executorch
    from pte_arenas.exporter import Exported, SharedArena, SharedBuffer, export
    from pte_arenas.layout import (
        ArenaBinding,
        ArenaLayout,
        ArenaSlot,
        BoundTensor,
        InitialData,
        MethodLayout,
        PlannedBuffer,
        ProgramLayout,
        SlotAccess,
    )
    from pte_arenas.memory import MethodMemory, ProgramMemory
    from pte_arenas.read import read_layout

# In the order of the flow. Imported on first use: the command line and the runtime must not wait
# for torch and exir where they do not need them.
_HOME = {
    "Arena": "declare",
    "EntryPoint": "declare",
    "export": "exporter",
    "Exported": "exporter",
    "SharedArena": "exporter",
    "SharedBuffer": "exporter",
    "to_executorch": "emitter",
    "ArenaProgramManager": "emitter",
    "ProgramMemory": "memory",
    "MethodMemory": "memory",
    "adopt": "adopter",
    "read_layout": "read",
    "check": "checker",
    "ProgramLayout": "layout",
    "ArenaLayout": "layout",
    "ArenaSlot": "layout",
    "MethodLayout": "layout",
    "PlannedBuffer": "layout",
    "ArenaBinding": "layout",
    "SlotAccess": "layout",
    "BoundTensor": "layout",
    "InitialData": "layout",
}

__all__ = [
    "Arena",
    "EntryPoint",
    "export",
    "Exported",
    "SharedArena",
    "SharedBuffer",
    "to_executorch",
    "ArenaProgramManager",
    "ProgramMemory",
    "MethodMemory",
    "adopt",
    "read_layout",
    "check",
    "ProgramLayout",
    "ArenaLayout",
    "ArenaSlot",
    "MethodLayout",
    "PlannedBuffer",
    "ArenaBinding",
    "SlotAccess",
    "BoundTensor",
    "InitialData",
    "ArenaError",
    "InvalidProgramError",
    "StateFileError",
    "DamagedStateError",
    "OtherProgramError",
    "MissingSlotError",
    "UnknownSlotError",
    "SlotMismatchError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
