"""What 64 sessions of one program hold in memory, beside one and beside 64 stock programs.

Run it as `python -m bench.sessions`. Each row is measured in a process of its own: resident memory
of that process when all sessions have run once, less what it had before the program was loaded. The
program has 16 MiB of weights and 4 KiB of state.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import rich
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from rich.table import Table
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

WIDTH = 2048
WEIGHTS = 4 * WIDTH * WIDTH
COUNT = 64


@dataclass(frozen=True)
class Row:
    """Resident bytes of one way to run the program.

    Attributes:
        name: Backend and way.
        one: With one session or stock program.
        all: With all of them.
    """

    name: str
    one: int
    all: int

    @property
    def copies(self) -> float:
        """How many copies of the weights all of them hold."""
        return self.all / WEIGHTS


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Not nn.Linear, the weight of which portable kernels transpose in planned memory.
        self.weight = nn.Parameter(torch.ones(WIDTH, WIDTH), requires_grad=False)
        self.register_buffer("last", torch.zeros(1024))

    def forward(self, x: Tensor) -> Tensor:
        self.last.copy_(x[0, :1024])
        return x @ self.weight


def write(path: Path, *, xnnpack: bool, arena: bool) -> None:
    module = Model().eval()
    arenas = [pa.Arena("state", ["last"])] if arena else []
    exported = pa.export({"forward": pa.EntryPoint(module, (torch.ones(1, WIDTH),))}, arenas)
    partitioner = [XnnpackPartitioner()] if xnnpack else None
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioner)
    pa.to_executorch(edge, exported.arenas).save(path)


def ours(path: Path, count: int) -> list[object]:
    program = load_program(path)
    sessions = [program.session() for _ in range(count)]
    for session in sessions:
        session.execute("forward", (torch.ones(1, WIDTH),))
    return list(sessions)


def stock(path: Path, count: int) -> list[object]:
    methods = [Runtime.get().load_program(path).load_method("forward") for _ in range(count)]
    for method in methods:
        method.execute((torch.ones(1, WIDTH),))
    return list(methods)


WAYS: dict[str, Callable[[Path, int], list[object]]] = {"sessions": ours, "stock programs": stock}


def resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def measure(way: str, path: Path, count: int) -> int:
    """In a process of its own, since freed memory may stay resident."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.sessions", "--child", way]
    run = subprocess.run(
        [*command, str(path), str(count)], check=True, capture_output=True, text=True
    )
    return int(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        way, path, count = options.child
        torch.ones(1, WIDTH) @ torch.ones(WIDTH, 1)  # what torch itself needs once
        before = resident()
        kept = WAYS[way](Path(path), int(count))
        print(resident() - before if kept else 0)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("portable", "xnnpack"):
            for way in WAYS:
                path = Path(folder) / f"{backend} {way}.pte"
                write(path, xnnpack=backend == "xnnpack", arena=way == "sessions")
                one, every = (measure(way, path, count) for count in (1, COUNT))
                rows.append(Row(f"{backend}, {way}", one, every))
    if options.json:
        print(json.dumps([{**asdict(row), "copies": row.copies} for row in rows], indent=2))
        return
    table = Table("program", "MiB, one", f"MiB, {COUNT}", "copies of the weights")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        numbers = (f"{row.one / 2**20:.1f}", f"{row.all / 2**20:.1f}", f"{row.copies:.2f}")
        table.add_row(row.name, *numbers)
    rich.print(table)


if __name__ == "__main__":
    main()
