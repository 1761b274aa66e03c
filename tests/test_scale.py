"""Emitting takes work in proportion to the slots and the methods.

Counted are calls, not seconds, and without those that stock makes: it takes the square of a
method's buffers itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import pte_arenas as pa
from bench.emit_scale import OneMethod

SLOTS, METHODS = 30, 2

OURS = "/pte_arenas/"
STOCK = ("/executorch/", "/torch/_export/")


class Calls:
    """Counts calls that this package makes, directly or through libraries other than stock's."""

    def __init__(self) -> None:
        self.count = 0
        self._mine = [False]

    def of(self, function: Callable[[], Any]) -> int:
        sys.setprofile(self._on_event)
        try:
            function()
        finally:
            sys.setprofile(None)
        return self.count

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            mine = OURS in name or (self._mine[-1] and not any(part in name for part in STOCK))
            self._mine.append(mine)
            self.count += mine
        elif event == "return":
            self._mine.pop()
        elif event == "c_call":
            self.count += self._mine[-1]


@functools.cache
def lowered(slots: int) -> OneMethod:
    return OneMethod(slots)


def work(slots: int, methods: int, *, in_place: bool) -> int:
    """Calls for a program in which every method uses every slot."""
    one = lowered(slots)
    edge, arenas = one.program(methods), one.shared(methods)
    pa.to_executorch(edge, arenas, in_place=in_place)  # fills caches
    return Calls().of(lambda: pa.to_executorch(edge, arenas, in_place=in_place))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("slots", "methods"),
    [pytest.param(2, 1, id="slots"), pytest.param(1, 2, id="methods")],
)
def test_twice_as_much_takes_twice_the_work(slots: int, methods: int, in_place: bool) -> None:
    once = work(SLOTS, METHODS, in_place=in_place)
    more = work(slots * SLOTS, methods * METHODS, in_place=in_place)
    assert once < more < 2.1 * once


def test_emitted_slots_are_right() -> None:
    one = lowered(SLOTS)
    layout = pa.read_layout(pa.to_executorch(one.program(METHODS), one.shared(METHODS)).buffer)
    (arena,) = layout.arenas
    assert [slot.fqn for slot in arena.slots] == [f"slot{index}" for index in range(SLOTS)]
    for method in layout.methods:
        (binding,) = method.bindings
        assert [access.slot for access in binding.accesses] == list(range(SLOTS))
