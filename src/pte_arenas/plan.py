"""Where each slot of an arena lies: pure arithmetic, the same in every method and on every machine.

Slots keep the order in which they are given, which is that of the module's buffers, so that the
layout of a file can be foreseen and does not depend on the order of the methods. Each begins at a
multiple of 16 bytes, as far as the arena is aligned to that itself: vector kernels like it, and
ExecuTorch's own planner does the same. All slots then have one alignment, no order of them
saves more than 15 bytes in total, and reordering is not worth a search. The arena ends where its
last slot ends; nothing is rounded up behind it, so that a capacity can be met exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pte_arenas.errors import ArenaError

SLOT_ALIGNMENT = 16
"""Alignment of each slot in bytes, where the arena itself has it."""

XNNPACK_PADDING = 64
"""Bytes behind the last tensor of a buffer that XNNPACK may read; exir's planner adds as many."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes to place in an arena.

    Attributes:
        name: Name of the slot, for messages.
        nbytes: Size in bytes.
        width: Size of one element in bytes; a power of two, of which the offset is a multiple.
    """

    name: str
    nbytes: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where the blocks lie.

    Attributes:
        offsets: First byte of each block, in the order of the blocks, which is ascending.
        size: Size of the arena in bytes: the end of the last block.
    """

    offsets: tuple[int, ...]
    size: int


def plan_arena(
    name: str, blocks: Sequence[Block], *, alignment: int = 64, capacity: int | None = None
) -> ArenaPlan:
    """Places blocks one after the other.

    Args:
        name: Name of the arena, for messages.
        blocks: What to place, in the order of their offsets.
        alignment: Alignment of the arena's first byte in bytes; a power of two.
        capacity: Largest size in bytes that the arena may take; None for no limit.

    Raises:
        ArenaError: The elements of a block need a larger alignment than the arena's, or the blocks
            take more than the capacity.
    """
    step = min(SLOT_ALIGNMENT, alignment)
    offsets: list[int] = []
    end = 0
    for block in blocks:
        if block.width > alignment:
            raise ArenaError(
                f"arena {name!r}: expected an alignment of at least {block.width} "
                f"for {block.name!r} but found {alignment}"
            )
        begin = _round_up(end, max(step, block.width))
        offsets.append(begin)
        end = begin + block.nbytes
    if capacity is not None and end > capacity:
        raise ArenaError(
            f"arena {name!r}: expected at most its capacity of {capacity} bytes but found {end}; "
            f"{_largest(blocks)}: raise the capacity or leave buffers out"
        )
    return ArenaPlan(tuple(offsets), end)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _largest(blocks: Sequence[Block], count: int = 3) -> str:
    ordered = sorted(blocks, key=lambda block: (-block.nbytes, block.name))
    return "the largest are " + ", ".join(
        f"{block.name!r} with {block.nbytes} bytes" for block in ordered[:count]
    )
