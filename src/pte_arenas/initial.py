"""Initial values of mutable buffers, which stock emission drops."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from executorch.exir.schema import Buffer, Tensor

from pte_arenas.bind import PlannedMethod
from pte_arenas.errors import ArenaError


class InitialValues:
    """The initial values of mutable buffers, each distinct one once; zeros are not stored."""

    def __init__(self) -> None:
        self._values: list[bytes] = [b""]  # index 0 means none
        self._index: dict[bytes, int] = {}

    def index(self, tensor: torch.Tensor) -> int:
        """Returns the index of a contiguous tensor's bytes, 0 where all of them are zero."""
        data = tensor.detach().reshape(-1).view(torch.uint8)
        if not bool(data.any()):
            return 0
        value = data.numpy().tobytes()
        key = hashlib.sha256(value).digest()
        if key not in self._index:
            self._index[key] = len(self._values)
            self._values.append(value)
        return self._index[key]

    def add_to(self, output: Any, private: Iterable[tuple[str, int, int, torch.Tensor]]) -> None:
        """Puts the values into emitted programs, and private buffers' indices into their tensors.

        Args:
            output: What stock emitted, with no initial values of mutable buffers.
            private: Method, memory id, offset and values of each private mutable buffer.
        """
        plans = {plan.name: plan for plan in output.program.execution_plan}
        tensors: dict[str, dict[tuple[int, int], Tensor]] = {}
        for method, memory_id, offset, values in private:
            index = self.index(values)
            if index:
                if method not in tensors:
                    tensors[method] = _tensors_by_place(plans[method].values)
                tensors[method][memory_id, offset].data_buffer_idx = index
        if output.mutable_data is not None:
            raise ArenaError(
                "expected no other initial values in the program but found "
                f"{len(output.mutable_data) - 1}"
            )
        if len(self._values) > 1:
            output.mutable_data = [Buffer(storage=value) for value in self._values]


def _tensors_by_place(values: Sequence[Any]) -> dict[tuple[int, int], Tensor]:
    """By place, the first tensor with bytes there: a buffer comes before its views."""
    tensors: dict[tuple[int, int], Tensor] = {}
    for value in values:
        tensor = value.val
        if isinstance(tensor, Tensor) and tensor.allocation_info and 0 not in tensor.sizes:
            at = tensor.allocation_info
            offset = at.memory_offset_high << 32 | at.memory_offset_low
            tensors.setdefault((at.memory_id, offset), tensor)
    return tensors


def private_values(
    programs: Mapping[str, Any], planned: Mapping[str, PlannedMethod]
) -> Iterator[tuple[str, int, int, torch.Tensor]]:
    """Yields method, memory id, offset and values of each method's own mutable buffers."""
    for method, plan in planned.items():
        program = programs[method]
        for name, (memory_id, offset) in plan.private.items():
            values = program.state_dict.get(name, program.constants.get(name))
            yield method, memory_id, offset, values.contiguous()
