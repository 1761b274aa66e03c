"""Loads programs and runs their methods over the arenas that the file declares.

A drop-in for `executorch.runtime` where methods share state:

    from pte_arenas.runtime import load_program

    session = load_program("vad.pte").session()
    (probability,) = session.load_method("detect").execute((chunk,))
    session.arena("state")["context"].tensor
"""

from pte_arenas.runtime._C import Method, MethodMeta, Snapshot, TensorInfo
from pte_arenas.runtime.program import Program, load_program
from pte_arenas.runtime.session import Session
from pte_arenas.runtime.views import ArenaView, SlotView

__all__ = [
    "load_program",
    "Program",
    "MethodMeta",
    "TensorInfo",
    "Session",
    "Snapshot",
    "Method",
    "ArenaView",
    "SlotView",
]
