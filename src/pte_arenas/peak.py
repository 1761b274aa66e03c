"""How many bytes of a memory are live at each instruction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pte_arenas.timeline import TensorLifetime


class Peak(NamedTuple):
    """Where most bytes are live.

    Attributes:
        nbytes: How many; bytes that several tensors share count once.
        instruction: The first instruction of which this is so.
        tensors: What is live there, the largest first.
    """

    nbytes: int
    instruction: int
    tensors: tuple[TensorLifetime, ...]


def live_bytes(tensors: Sequence[TensorLifetime], length: int) -> list[int]:
    """Counts the live bytes at each of `length` instructions, shared ones once.

    Args:
        tensors: Tensors of one memory.
        length: Number of instructions.
    """
    ends = [edge for each in tensors for edge in (each.offset, each.offset + each.nbytes)]
    edges = np.unique(np.array(ends, dtype=np.uint64))
    pieces = np.diff(edges)
    users = np.zeros(len(pieces), dtype=np.int64)
    changes = [0] * (length + 1)
    events = [(each.end, -1, each) for each in tensors if each.begin < each.end]
    events += [(each.begin, 1, each) for each in tensors if each.begin < each.end]
    for when, step, tensor in sorted(events, key=lambda event: event[:2]):
        span = np.array([tensor.offset, tensor.offset + tensor.nbytes], dtype=np.uint64)
        part = slice(*np.searchsorted(edges, span))
        before = users[part] > 0
        users[part] += step
        changed = before != (users[part] > 0)
        changes[when] += step * int(pieces[part][changed].sum())
    return list(accumulate(changes[:length]))


def find_peak(tensors: Sequence[TensorLifetime], length: int) -> Peak:
    """Finds where most bytes of a memory are live; see `live_bytes`."""
    counts = live_bytes(tensors, length)
    nbytes = max(counts)
    instruction = counts.index(nbytes)
    live = [tensor for tensor in tensors if tensor.begin <= instruction < tensor.end]
    live.sort(key=lambda tensor: (-tensor.nbytes, tensor.offset))
    return Peak(nbytes, instruction, tuple(live))
