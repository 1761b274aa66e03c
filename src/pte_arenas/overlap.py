"""Which planned tensors lie on the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pte_arenas.timeline import TensorLifetime


class Places:
    """Where and when the tensors of a method lie, to look up which ones share bytes."""

    def __init__(self, tensors: Sequence[TensorLifetime]) -> None:
        self._tensors = tensors
        self._memory_ids = np.array([each.memory_id for each in tensors], dtype=np.uint64)
        self._begins = np.array([each.offset for each in tensors], dtype=np.uint64)
        sizes = np.array([each.nbytes for each in tensors], dtype=np.uint64)
        self._ends = self._begins + sizes  # they lie in a memory of at most 2^64 - 1 bytes

        self._first = np.array([each.begin for each in tensors], dtype=np.int64)
        self._last = np.array([each.end for each in tensors], dtype=np.int64)

    def sharers(self, tensor: TensorLifetime, *, at_once: bool = False) -> list[TensorLifetime]:
        """The tensors other than this one that have some of its bytes, or do `at_once` with it."""
        if not tensor.nbytes:
            return []
        found = (
            (self._memory_ids == tensor.memory_id)
            & (self._begins < tensor.offset + tensor.nbytes)
            & (self._ends > tensor.offset)
            & (self._begins < self._ends)
        )
        if at_once:
            found &= (self._first < tensor.end) & (self._last > tensor.begin)
        near = [self._tensors[i] for i in np.flatnonzero(found).tolist()]
        return [each for each in near if each.value != tensor.value]
