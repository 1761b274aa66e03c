"""What a call costs: ours beside `executorch.runtime`, and a `Session` in C++ over a bare `Method`.

Run it as `python -m bench.calls`; `--cpp FOLDER` adds the row in C++, where FOLDER has
the program `cpp_calls` that CMake builds with `-DPTE_ARENAS_BUILD_BENCH=ON`. Each row is measured
in turns and the fastest turn counts, so that the ratio holds on a busy machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from torch import Tensor, nn

from bench.rows import Row, as_json, compare, show
from bench.shared_state import emit, emit_stock
from pte_arenas.runtime import load_program

ROWS = 1 << 10
"""Of a large output, each of as many elements of four bytes."""


class Add(nn.Module):
    def forward(self, *inputs: Tensor) -> Tensor:
        total = inputs[0] + inputs[-1]
        for value in inputs[1:-1]:
            total = total + value
        return total


class Repeat(nn.Module):
    """Writes much and does little else, so that what its outputs cost can be seen."""

    def forward(self, row: Tensor) -> Tensor:
        return row.repeat(ROWS, 1)


def program(module: nn.Module, inputs: Sequence[Tensor], *, plan_outputs: bool = True) -> bytes:
    exported = torch.export.export(module, tuple(value.clone() for value in inputs))
    planning = MemoryPlanningPass(alloc_graph_output=plan_outputs)
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    data: bytes = to_edge(exported).to_executorch(config).buffer
    return data


def measured(calls: Sequence[Callable[[], object]], number: int, turns: int) -> list[list[float]]:
    """Seconds of one call of each, in each of several turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(turns):
        for call, seconds in zip(calls, found, strict=True):
            begin = time.perf_counter()
            for _ in range(number):
                call()
            seconds.append((time.perf_counter() - begin) / number)
    return found


fastest = functools.partial(compare, pick=min)


def small(count: int, turns: int) -> Row:
    inputs = tuple(torch.full((4,), float(index + 1)) for index in range(count))
    data = program(Add(), inputs)
    stock = Runtime.get().load_program(data).load_method("forward")
    ours = load_program(data).load_method("forward")
    for method in (stock, ours):
        torch.testing.assert_close(method.execute(inputs)[0], Add()(*inputs))
    times = measured(
        [lambda: stock.execute(inputs), lambda: ours.execute(inputs)], number=100, turns=20 * turns
    )
    noun = "input" if count == 1 else "inputs"
    return fastest(f"call, 4-float add, {count} {noun}", "executorch.runtime", *times, goal=0.25)


def large(turns: int) -> list[Row]:
    inputs = (torch.ones(ROWS),)
    planned, unplanned = (program(Repeat(), inputs, plan_outputs=plan) for plan in (True, False))
    stock = Runtime.get().load_program(planned).load_method("forward")
    copied = load_program(planned).load_method("forward")
    placed = load_program(unplanned).load_method("forward")
    calls = [
        lambda: stock.execute(inputs),
        lambda: copied.execute(inputs),
        lambda: copied.execute(inputs, copy_outputs=False),
        lambda: placed.execute(inputs),
    ]
    for call in calls:
        torch.testing.assert_close(call()[0], Repeat()(*inputs))
    first, *times = measured(calls, number=20, turns=turns)
    names = ("copied", "copy_outputs=False", "not planned by the program")
    goals = (None, 0.5, 0.5)
    return [
        fastest(f"call, 4 MiB output, {name}", "executorch.runtime", first, seconds, goal=goal)
        for name, seconds, goal in zip(names, times, goals, strict=True)
    ]


def loads(turns: int) -> list[Row]:
    """Both files are in memory and have the same four methods over the same buffers.

    Stock's binding allocates all planned memory with the program, a session its arenas.
    """
    stock, arenas = emit_stock(5.0), emit(5.0, require_arenas=True)
    calls = [
        lambda: Runtime.get().load_program(stock),
        lambda: load_program(stock).session(),
        lambda: load_program(arenas).session(),
    ]
    theirs, without, with_arenas = measured(calls, number=50, turns=turns)
    what = "load a file without arenas and make a session"
    return [
        fastest(what, "executorch.runtime", theirs, without),
        fastest("the same with arenas", "ours without arenas", without, with_arenas),
    ]


def in_cpp(executable: Path) -> Row:
    """A method of some 0.15 µs or more, resolved beforehand, beside a second thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.pte"
        path.write_bytes(program(Add(), (torch.ones(4),)))
        run = subprocess.run([executable, path], check=True, capture_output=True, text=True)
    times = json.loads(run.stdout)
    return Row("call in C++ of a Session", "Method", times["method"], times["session"], goal=1.05)


def measure(cpp: Path | None = None, turns: int = 50) -> list[Row]:
    """Compares calls from Python and, where a folder has the program for it, from C++."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [small(1, turns), small(4, turns), *large(turns), *loads(turns)]
    return rows if cpp is None else [*rows, in_cpp(cpp / "cpp_calls")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--turns", type=int, default=50, help="how often each row is measured")
    parser.add_argument("--cpp", type=Path, help="folder of the program `cpp_calls`")
    options = parser.parse_args()
    rows = measure(options.cpp, options.turns)
    print(as_json(rows)) if options.json else show(rows)


if __name__ == "__main__":
    main()
