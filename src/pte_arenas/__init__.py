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
    from pte_arenas.budgets import BudgetLine, BudgetReport, MemoryPart, Occupant, check_budget
    from pte_arenas.checker import check
    from pte_arenas.declare import Arena, EntryPoint
    from pte_arenas.differences import Difference, diff
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
    from pte_arenas.lifetimes import read_timeline
    from pte_arenas.memory import MethodMemory, ProgramMemory
    from pte_arenas.read import read_layout
    from pte_arenas.timeline import (
        Instruction,
        MethodTimeline,
        ProgramTimeline,
        TensorLifetime,
    )
    from pte_arenas.verification import CaseResult, VerificationReport, verify

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
    "verify": "verification",
    "VerificationReport": "verification",
    "CaseResult": "verification",
    "ProgramLayout": "layout",
    "ArenaLayout": "layout",
    "ArenaSlot": "layout",
    "MethodLayout": "layout",
    "PlannedBuffer": "layout",
    "ArenaBinding": "layout",
    "SlotAccess": "layout",
    "BoundTensor": "layout",
    "InitialData": "layout",
    "read_timeline": "lifetimes",
    "ProgramTimeline": "timeline",
    "MethodTimeline": "timeline",
    "Instruction": "timeline",
    "TensorLifetime": "timeline",
    "diff": "differences",
    "Difference": "differences",
    "check_budget": "budgets",
    "BudgetReport": "budgets",
    "BudgetLine": "budgets",
    "MemoryPart": "budgets",
    "Occupant": "budgets",
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
    "verify",
    "VerificationReport",
    "CaseResult",
    "ProgramLayout",
    "ArenaLayout",
    "ArenaSlot",
    "MethodLayout",
    "PlannedBuffer",
    "ArenaBinding",
    "SlotAccess",
    "BoundTensor",
    "InitialData",
    "read_timeline",
    "ProgramTimeline",
    "MethodTimeline",
    "Instruction",
    "TensorLifetime",
    "diff",
    "Difference",
    "check_budget",
    "BudgetReport",
    "BudgetLine",
    "MemoryPart",
    "Occupant",
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
