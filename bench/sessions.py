"""What 64 sessions of one program hold in memory, beside one and beside 64 stock programs.

Run it as `python -m bench.sessions`. Each row is measured in a process of its own: proportional
memory (PSS: a page of a file that is mapped several times counts once) of that process when all
sessions have run once, less what it had before the program was loaded. The program has 16 MiB of
weights and 4 KiB of state.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor, nn

import pte_arenas as pa
from bench.rows import Row, as_json, show
from pte_arenas.runtime import load_program

WIDTH = 2048
WEIGHTS = 4 * WIDTH * WIDTH
COUNT = 64


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
    status = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) * 1024


def resident_of(way: str, path: Path, count: int) -> int:
    """In a process of its own, since freed memory may stay resident."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.sessions", "--child", way]
    run = subprocess.run(
        [*command, str(path), str(count)], check=True, capture_output=True, text=True
    )
    return int(run.stdout.splitlines()[-1])


def measure() -> list[Row]:
    """Compares 64 sessions with 64 stock programs and, for copies of the weights, with one."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("portable", "xnnpack"):
            paths = {way: Path(folder) / f"{backend} {way}.pte" for way in WAYS}
            for way, path in paths.items():
                write(path, xnnpack=backend == "xnnpack", arena=way == "sessions")
            one = resident_of("sessions", paths["sessions"], 1)
            every = resident_of("sessions", paths["sessions"], COUNT)
            stock = resident_of("stock programs", paths["stock programs"], COUNT)
            what = f"memory of {COUNT} sessions, {backend}"
            rows.append(Row(what, f"{COUNT} stock programs", stock, every, "B"))
            # A session besides may take its activations, but no weights.
            rows.append(Row(what, "1 session and the weights", one + WEIGHTS, every, "B", goal=1.0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        way, path, count = options.child
        torch.ones(1, WIDTH) @ torch.ones(WIDTH, 1)  # what torch itself needs once
        before = resident()
        kept = WAYS[way](Path(path), int(count))
        print(resident() - before if kept else 0)
        return
    rows = measure()
    print(as_json(rows)) if options.json else show(rows)


if __name__ == "__main__":
    main()
