"""Arenas for programs that come from `torch.export.export` itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

X = torch.ones(1, 16)


class Method(nn.Module):
    """One method of a family of modules over buffers of one name."""

    def __init__(self, kind: str, start: float = 0.0, sizes: tuple[int, ...] = (16, 16)) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("w", torch.full(sizes, start))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "write":
            self.w.add_(x)
            return self.w.sum()
        return nn.functional.linear(x, self.w)


def _lower(modules: dict[str, nn.Module], partitioner: Any = None) -> Any:
    programs = {name: torch.export.export(module, (X,)) for name, module in modules.items()}
    return to_edge_transform_and_lower(programs, partitioner=partitioner)


@pytest.mark.parametrize("buffers", [["w"], None], ids=["named", "all-shared"])
def test_one_name_is_one_slot(buffers: list[str] | None) -> None:
    edge = _lower({"write": Method("write", 2.0), "read": Method("read", 2.0)})
    emitted = pa.to_executorch(edge, [pa.Arena("state", buffers)])
    session = load_program(emitted.buffer).session()
    eager = Method("read", 2.0)
    for _ in range(2):
        session.execute("write", (X,))
        eager.w.add_(X)
        (have,) = session.execute("read", (X,))
        torch.testing.assert_close(have, eager(X), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("modules", "partitioner", "message"),
    [
        pytest.param(
            {"write": Method("write"), "read": Method("read")},
            [XnnpackPartitioner()],
            "read: expected buffer 'w' of arena 'state' to be live but found that the delegate "
            "XnnpackBackend holds its initial values as constants; export the methods with "
            "pte_arenas.export, which keeps state out of delegates",
            id="F18-swallowed",
            marks=pytest.mark.fault("F18"),
        ),
        pytest.param(
            {"write": Method("write"), "read": Method("read", sizes=(8, 16))},
            None,
            "buffer 'w': expected one dtype and shape but found float32 of sizes (16, 16) in "
            "'write' and float32 of sizes (8, 16) in 'read'; rename one of the buffers",
            id="F33-sizes",
            marks=pytest.mark.fault("F33"),
        ),
        pytest.param(
            {"write": Method("write"), "read": Method("read", 1.0)},
            None,
            "buffer 'w': expected one initial value but found different ones in 'write' and "
            "'read'; share one tensor between the modules, or rename one of the buffers",
            id="F33-values",
            marks=pytest.mark.fault("F33"),
        ),
    ],
)
def test_refused(modules: dict[str, nn.Module], partitioner: Any, message: str) -> None:
    edge = _lower(modules, partitioner)
    with pytest.raises(pa.ArenaError) as error:
        pa.to_executorch(edge, [pa.Arena("state", ["w"])])
    assert str(error.value) == message


def test_strided_state_is_refused() -> None:
    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            zeros = torch.zeros(1, 2, 3, 3).to(memory_format=torch.channels_last)
            self.register_buffer("w", zeros)

        def forward(self, x: Tensor) -> Tensor:
            self.w.add_(x.sum())
            return self.w * 2

    with pytest.raises(pa.ArenaError) as error:
        pa.to_executorch(_lower({"step": Image()}), [pa.Arena("state", ["w"])])
    assert str(error.value) == (
        "buffer 'w': expected contiguous state but found strides (18, 1, 6, 2); export the methods "
        "with pte_arenas.export, which stores state contiguously"
    )


def test_no_match() -> None:
    with pytest.raises(pa.ArenaError) as error:
        pa.to_executorch(_lower({"read": Method("read")}), [pa.Arena("state", ["v"])])
    assert str(error.value) == (
        "arena 'state': expected a buffer that matches 'v' but found none; there are 'w'"
    )
