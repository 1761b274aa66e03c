"""Closes the holes that tensors leave in planned memory when others move out of it.

Bytes that no tensor uses are taken away, and everything behind them moves up. The order of all
offsets stays, and so does each distance inside a stretch of used bytes: two tensors overlap after
this exactly if they did before, in the same bytes of each. So the result of any planner stays
valid, whatever its idea of lifetimes. Pure arithmetic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Squeezed:
    """Where each byte of the used stretches goes.

    Attributes:
        begins: First byte of each stretch before, ascending.
        moves: By how many bytes each stretch moves up.
        end: The byte after the last used one, after the move.
    """

    begins: tuple[int, ...]
    moves: tuple[int, ...]
    end: int

    def __getitem__(self, offset: int) -> int:
        """The new offset of a tensor that was at `offset`."""
        return offset - self.moves[bisect_right(self.begins, offset) - 1]


def squeeze(spans: Iterable[tuple[int, int]], alignment: int) -> Squeezed:
    """Takes unused bytes away.

    Args:
        spans: First byte of each tensor and the byte after its last.
        alignment: Offsets stay what they were modulo this many bytes.
    """
    begins: list[int] = []
    moves: list[int] = []
    end_before = end = 0
    for begin, span_end in sorted(spans):
        if not begins or begin > end_before:
            move = (begin - end) // alignment * alignment
            begins.append(begin)
            moves.append(move)
        end_before = max(end_before, span_end)
        end = max(end, span_end - moves[-1])
    return Squeezed(tuple(begins), tuple(moves), end)
