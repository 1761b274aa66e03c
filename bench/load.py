"""Loading a program of three methods with a large state: time and resident memory.

Run it as `python -m bench.load --cpp FOLDER`, where FOLDER has the program `load_program` of
`bench/cpp`. Every load has a process of its own; stock's `Module` loads the same program exported
its way (`share_mutable_buffers`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch import Tensor, nn

import pte_arenas as pa
from bench.rows import Row, as_json, compare, show

METHODS = ("forward", "get", "clear")
GIB = 1 << 30
TURNS = 3


class Large(nn.Module):
    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(nbytes, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        self.state[:1].add_(x)
        return self.state[:1] * 1

    def get(self, x: Tensor) -> Tensor:
        return self.state[:1] + x

    def clear(self, x: Tensor) -> Tensor:
        self.state[:1].mul_(0)
        return x + 1


class _Method(nn.Module):
    """A method as a module that shares the state, for stock."""

    def __init__(self, owner: Large, method: str) -> None:
        super().__init__()
        self.register_buffer("state", owner.state)
        self._call = getattr(Large, method)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self._call(self, x)
        return result


X = torch.ones(1, dtype=torch.uint8)


def write_ours(path: Path, nbytes: int) -> None:
    module = Large(nbytes)
    exported = pa.export(
        {name: pa.EntryPoint(getattr(module, name), (X,)) for name in METHODS},
        [pa.Arena("state", ["state"])],
    )
    pa.to_executorch(to_edge(exported.programs), exported.arenas).save(str(path))


def write_stock(path: Path, nbytes: int) -> None:
    module = Large(nbytes)
    programs = {name: torch.export.export(_Method(module, name), (X,)) for name in METHODS}
    planning = MemoryPlanningPass(share_mutable_buffers=True)
    # In place, as ours: without it a method also plans an activation as large as the state.
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning, emit_mutable_buffer_names=True, run_reinplace_pass=True
    )
    path.write_bytes(to_edge(programs).to_executorch(config).buffer)


def load(program: Path, way: str, path: Path) -> dict[str, float]:
    command = [program, way, path, *METHODS]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(run.stdout)
    return measured


def measure(folder: Path, nbytes: int = GIB) -> list[Row]:
    """Compares both loaders on a state of so many bytes, and ours with an empty state."""
    program = folder / "load_program"
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock, ours, empty = (
            Path(directory) / f"{name}.pte" for name in ("stock", "ours", "empty")
        )
        write_stock(stock, nbytes)
        write_ours(ours, nbytes)
        write_ours(empty, 64)
        shared, mine, least = [], [], []
        for _ in range(TURNS):
            shared.append(load(program, "stock-shared", stock))
            mine.append(load(program, "ours", ours))
            least.append(load(program, "ours", empty))
    size = "1 GiB" if nbytes == GIB else f"{nbytes:,} bytes"
    what, against = f"load 3 methods with a state of {size}", "Module(share_memory_arenas)"
    resident = _each(mine, "resident")
    allowed = [nbytes + 4 * (1 << 20) for nbytes in _each(least, "resident")]
    return [
        compare(what, against, _each(shared, "seconds"), _each(mine, "seconds"), goal=0.01),
        compare(f"{what}: resident", against, _each(shared, "resident"), resident, "B"),
        compare(
            f"{what}: resident", "a state of 64 bytes, and 4 MiB", allowed, resident, "B", goal=1.0
        ),
    ]


def _each(runs: list[dict[str, float]], what: str) -> list[float]:
    return [run[what] for run in runs]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--cpp", type=Path, required=True, help="where `load_program` is")
    parser.add_argument("--nbytes", type=int, default=GIB, help="of state, to try it")
    arguments = parser.parse_args()
    rows = measure(arguments.cpp, arguments.nbytes)
    if arguments.json:
        print(as_json(rows))
    else:
        show(rows)


if __name__ == "__main__":
    main()
