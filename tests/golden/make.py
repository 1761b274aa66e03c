"""Makes the golden files again: `python tests/golden/make.py [FOLDER]`; see README.md."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

import pte_arenas as pa

HERE = Path(__file__).parent


class Counter(nn.Module):
    """Counts from 5."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(5))

    def forward(self, step: Tensor) -> Tensor:
        self.count.add_(step)
        return self.count.clone()

    def get(self) -> Tensor:
        return self.count.clone()

    def reset(self) -> None:
        self.count.fill_(5)


class Mixed(nn.Module):
    """State of several types and shapes, in two arenas."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("total", torch.tensor(0))
        self.register_buffer("history", torch.zeros(2, 3, dtype=torch.float16))
        self.register_buffer("scale", torch.tensor([0.5, 2.0]))

    def push(self, value: Tensor) -> Tensor:
        self.history.copy_(torch.stack([self.history[1], value.to(torch.float16)]))
        self.flags.logical_not_()
        self.total.add_(1)
        return self.history.float().sum() * self.scale[0]

    def peek(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.total.clone(), self.flags.clone(), self.scale * 2

    def rescale(self, factor: Tensor) -> None:
        self.scale.mul_(factor)


def make_counter(path: Path) -> None:
    """One arena of one slot with an initial value."""
    counter = Counter()
    exported = pa.export(
        {
            "forward": pa.EntryPoint(counter, (torch.tensor(1),)),
            "get": pa.EntryPoint(counter.get),
            "reset": pa.EntryPoint(counter.reset),
        },
        arenas=[pa.Arena("state")],
    )
    edge = to_edge_transform_and_lower(exported.programs)
    pa.to_executorch(edge, arenas=exported.arenas).save(path)


def make_mixed(path: Path) -> None:
    """Two arenas: several types with padding between them, and one that starts with zeros."""
    mixed = Mixed()
    exported = pa.export(
        {
            "push": pa.EntryPoint(mixed.push, (torch.ones(3),)),
            "peek": pa.EntryPoint(mixed.peek),
            "rescale": pa.EntryPoint(mixed.rescale, (torch.tensor(2.0),)),
        },
        arenas=[
            pa.Arena("stream", ["flags", "total", "history"]),
            pa.Arena("calibration", ["scale"], alignment=16, initial="zeros"),
        ],
    )
    edge = to_edge_transform_and_lower(exported.programs)
    pa.to_executorch(edge, arenas=exported.arenas).save(path)


def make_stock(path: Path) -> None:
    """The counter as ExecuTorch itself writes it."""
    program = torch.export.export(Counter(), (torch.tensor(1),))
    path.write_bytes(to_edge_transform_and_lower(program).to_executorch().buffer)


def make_all(folder: Path) -> None:
    """Makes every golden file in a folder."""
    for name, make in {
        "counter": make_counter,
        "mixed": make_mixed,
        "stock": make_stock,
    }.items():
        path = folder / f"{name}.pte"
        make(path)
        layout = pa.read_layout(path).model_dump_json(indent=2)
        path.with_suffix(".json").write_text(layout + "\n")


if __name__ == "__main__":
    make_all(Path(*sys.argv[1:]) if sys.argv[1:] else HERE)
