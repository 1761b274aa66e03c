"""The public names, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pte_arenas as pa
from pte_arenas import runtime

PUBLIC = [
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
RUNTIME = [
    "load_program",
    "LoadMode",
    "Verification",
    "Runtime",
    "BackendRegistry",
    "OperatorRegistry",
    "Program",
    "MethodMeta",
    "TensorInfo",
    "Session",
    "Snapshot",
    "Method",
    "ArenaView",
    "SlotView",
]


def test_names() -> None:
    assert pa.__all__ == PUBLIC
    assert all(hasattr(pa, name) for name in PUBLIC)
    assert all(getattr(pa, name).__doc__ for name in PUBLIC)
    assert sorted(runtime.__all__) == sorted(RUNTIME)
    assert all(getattr(runtime, name).__doc__ for name in RUNTIME)


def test_unknown_name() -> None:
    assert not hasattr(pa, "no_such_name")


def test_import_is_light() -> None:
    code = "import sys, pte_arenas, pte_arenas.cli; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"
