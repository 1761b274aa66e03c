"""Views of a session's arenas: live, without copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pte_arenas.layout import ArenaLayout, ArenaSlot
from pte_arenas.runtime import _C
from pte_arenas.runtime.names import check_name

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SlotView:
    """A named tensor inside an arena of a session.

    Attributes:
        arena: Name of the arena.
        layout: What the file says of the slot.
    """

    arena: str
    layout: ArenaSlot
    _session: _C.Session = field(repr=False)

    @property
    def fqn(self) -> str:
        """Fully qualified name in the exported module."""
        return self.layout.fqn

    @property
    def tensor(self) -> torch.Tensor:
        """The slot's memory as a tensor: reads and writes are the session's state.

        It keeps the session alive. Using it while a method executes in another thread is a race.

        Raises:
            ArenaError: The arena is on a device.
        """
        return self._session.slot_tensor(self.arena, self.layout.fqn)

    def clone(self) -> torch.Tensor:
        """A copy of the slot that is the caller's own, made while no method executes."""
        return self._session.clone_slot(self.arena, self.layout.fqn)

    def copy_from(self, tensor: torch.Tensor) -> None:
        """Copies a tensor into the slot, while no method executes.

        Args:
            tensor: On the CPU, with the dtype and sizes of the slot; in any memory format.

        Raises:
            ValueError: It has another dtype or other sizes.
        """
        self._session.copy_to_slot(self.arena, self.layout.fqn, tensor)


class ArenaView:
    """The slots of an arena of a session, by fully qualified name."""

    def __init__(self, session: _C.Session, layout: ArenaLayout) -> None:
        self._session = session
        self._slots = {slot.fqn: slot for slot in layout.slots}
        self.layout = layout

    @property
    def name(self) -> str:
        """Name of the arena."""
        return self.layout.name

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.layout.size

    def __getitem__(self, fqn: str) -> SlotView:
        check_name(f"a slot of arena '{self.name}'", fqn, self._slots)
        return SlotView(self.name, self._slots[fqn], self._session)

    def __contains__(self, fqn: object) -> bool:
        return fqn in self._slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __repr__(self) -> str:
        return f"ArenaView({self.name!r}, slots=[{', '.join(self._slots)}])"
