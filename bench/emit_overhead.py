"""What arenas add to serialising and writing a program, in time and in peak memory.

Run it as `python -m bench.emit_overhead`. Each program is a small one, enlarged after emission:

* *instructions*: 10,000 instructions with their values.
* *weights*: 500 MB of constants, which lie in a segment behind the program.
* *inline*: 500 MB of delegate data inside the program, which putting arenas in front has to copy.
  Only programs emitted with `extract_delegate_segments=False` are like that.

Every measurement has a process of its own, stock and arenas by turns, and the best of several
counts. *Added* is the time of the step that stock does not have, measured by itself, since it is
less than what two runs differ by.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rich
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._cord import Cord
from executorch.exir.schema import BackendDelegateInlineData, Buffer, KernelCall, Program
from rich.table import Table
from torch import Tensor, nn

import pte_arenas as pa
from bench.rows import Row
from pte_arenas import _exir
from pte_arenas.splice import splice_program

INSTRUCTIONS = 10_000
BIG = 500_000_000
ROUNDS = 3


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((64,), 5.0))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 2


def _enlarge_instructions(program: Program) -> None:
    (plan,) = program.execution_plan
    (chain,) = plan.chains
    once, values = list(chain.instructions), list(plan.values)
    while len(chain.instructions) < INSTRUCTIONS:
        shift = len(plan.values)
        plan.values += copy.deepcopy(values)
        chain.instructions += [_shifted(instruction, shift) for instruction in once]


def _shifted(instruction: Any, shift: int) -> Any:
    call = instruction.instr_args
    assert isinstance(call, KernelCall)
    args = [index + shift for index in call.args]
    return dataclasses.replace(instruction, instr_args=dataclasses.replace(call, args=args))


def _enlarge_weights(program: Program) -> None:
    program.constant_buffer.append(Buffer(storage=b"\1" * BIG))


def _enlarge_inline(program: Program) -> None:
    program.backend_delegate_data.append(BackendDelegateInlineData(data=b"\1" * BIG))


KINDS = {
    "instructions": _enlarge_instructions,
    "weights": _enlarge_weights,
    "inline": _enlarge_inline,
}


WORDS = {
    "instructions": "10,000 instructions",
    "weights": "500 MB of weights",
    "inline": "500 MB inside the program, not the default",
}


def measure_here(kind: str, *, arenas: bool) -> dict[str, float]:
    """Writes an enlarged program in this process.

    Returns:
        Seconds of the processor for all of it and for what arenas add, and peak memory in bytes.
    """
    warnings.simplefilter("ignore")
    exported = pa.export(
        {"forward": pa.EntryPoint(Counter(), (torch.ones(64),))}, [pa.Arena("state", ["total"])]
    )
    manager = pa.to_executorch(to_edge(exported.programs), exported.arenas)
    layout = pa.read_layout(manager.buffer)
    bindings = {method.name: method.bindings for method in layout.methods}
    program = copy.deepcopy(manager.executorch_program)
    KINDS[kind](program)
    value = exported.arenas[0].buffers[0].values.numpy().tobytes()
    output = SimpleNamespace(
        program=program, mutable_data=[Buffer(b""), Buffer(value)], external_constant_map={}
    )
    config = ExecutorchBackendConfig(extract_delegate_segments=kind != "inline")
    with tempfile.TemporaryFile() as file:
        start = time.process_time()
        _, cord, _ = _exir.serialize(output, config, None)
        before = time.process_time()
        if arenas:
            spliced = Cord()
            for chunk in splice_program(
                _exir.chunks(cord),
                layout.arenas,
                bindings,
                segment_alignment=config.segment_alignment,
            ):
                spliced.append(chunk)
            cord = spliced
        added = time.process_time() - before
        cord.write_to_file(file)
        total = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"total": total, "added": added, "peak": peak}


def measure(kind: str) -> dict[str, float]:
    """Measures one kind of program in processes of their own."""
    stock, arenas = [], []
    for _ in range(ROUNDS):
        stock.append(_in_child(kind))
        arenas.append(_in_child(kind, "--arenas"))
    before, after = _best(stock), _best(arenas)
    ratios = [1 + mine["added"] / other["total"] for other, mine in zip(stock, arenas, strict=True)]
    return {
        "lowest": min(ratios),
        "highest": max(ratios),
        "stock seconds": before["total"],
        "arenas seconds": after["total"],
        "added seconds": after["added"],
        "added time": after["added"] / before["total"],
        "stock peak": before["peak"],
        "arenas peak": after["peak"],
        "added peak": after["peak"] / before["peak"] - 1,
    }


def rows() -> list[Row]:
    """The same, for the table of all comparisons."""
    found = []
    for kind in KINDS:
        row = measure(kind)
        goal = None if kind == "inline" else 1.02
        seconds, added = row["stock seconds"], row["added seconds"]
        spread = row["lowest"], row["highest"]
        what = f"emit, {WORDS[kind]}"
        found.append(Row(what, "stock", seconds, seconds + added, goal=goal, spread=spread))
        peak, with_arenas = row["stock peak"], row["arenas peak"]
        found.append(Row("the same, peak memory", "stock", peak, with_arenas, "B", goal=goal))
    return found


def _in_child(kind: str, *options: str) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, "--child", kind, *options]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _best(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: min(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.emit_overhead", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--arenas", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure_here(arguments.child, arenas=arguments.arenas)))
        return
    rows = {kind: measure(kind) for kind in KINDS}
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)
        return
    table = Table("program")
    for heading in ("stock", "added", "", "stock peak", "with arenas", ""):
        table.add_column(heading, justify="right")
    for kind, row in rows.items():
        table.add_row(
            kind,
            f"{row['stock seconds']:.3f} s",
            f"{row['added seconds'] * 1000:.2f} ms",
            f"{row['added time']:+.2%}",
            f"{row['stock peak'] / 1e6:,.0f} MB",
            f"{row['arenas peak'] / 1e6:,.0f} MB",
            f"{row['added peak']:+.2%}",
        )
    rich.print(table)


if __name__ == "__main__":
    main()
