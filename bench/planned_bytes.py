"""What ExecuTorch's Llama plans in memory: stock in its four ways, and with arenas.

Run it as `python -m bench.planned_bytes`. The module is that of `bench/llama.py`: two layers of
random weights, a prefill of up to 127 tokens and a decode over one cache of 64 KiB.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import rich
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from rich.table import Table

import pte_arenas as pa
from bench.llama import export_stock, export_with_arena, lower, make_llama

SCRATCH = pa.SharedArena(pa.Arena("scratch", lifetime="scratch"), ())


@dataclass(frozen=True)
class Planned:
    """Planned bytes of one program.

    Attributes:
        name: How it was made.
        own: By method, bytes that it does not share.
        state: Bytes of state that the methods share, once.
        scratch: Bytes of activations that they share, once.
    """

    name: str
    own: dict[str, int]
    state: int
    scratch: int

    @property
    def program(self) -> int:
        """Bytes of the program when all of its methods are loaded."""
        return sum(self.own.values()) + self.state + self.scratch


def of_stock(name: str, program: Any, shared_id: int | None = None) -> Planned:
    """Reads a stock program; one memory id may be shared by whoever loads it."""
    plans = program.executorch_program.execution_plan
    own = {plan.name: sum(plan.non_const_buffer_sizes) for plan in plans}
    state = 0
    if shared_id is not None:
        (state,) = {plan.non_const_buffer_sizes[shared_id] for plan in plans}
        own = {method: size - state for method, size in own.items()}
    return Planned(name, own, state, 0)


def of_arenas(name: str, program: pa.ArenaProgramManager) -> Planned:
    """Reads a program with arenas."""
    layout = pa.read_layout(program.buffer)
    sizes = {"state": 0, "scratch": 0}
    for arena in layout.arenas:
        sizes[arena.lifetime] += arena.size
    return Planned(name, {method.name: method.planned_bytes for method in layout.methods}, **sizes)


def measure(*, xnnpack: bool) -> Iterator[Planned]:
    """Lowers the module for stock and for arenas once each, and emits it in every way."""
    edge = lower(export_stock(make_llama()), xnnpack=xnnpack)
    default, shared, reinplaced, both = (copy.deepcopy(edge) for _ in range(4))  # emitting changes
    yield of_stock("stock", default.to_executorch())
    sharing = MemoryPlanningPass(share_mutable_buffers=True)
    program = shared.to_executorch(ExecutorchBackendConfig(memory_planning_pass=sharing))
    yield of_stock("stock, share_mutable_buffers", program, shared_id=2)
    program = reinplaced.to_executorch(ExecutorchBackendConfig(run_reinplace_pass=True))
    yield of_stock("stock, run_reinplace_pass", program)
    sharing = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=sharing, run_reinplace_pass=True)
    yield of_stock("stock, both", both.to_executorch(config), shared_id=2)
    exported = export_with_arena()
    edge = lower(exported.programs, xnnpack=xnnpack)
    for name, arenas in (("state", ()), ("state and scratch", (SCRATCH,))):
        for in_place in (False, True):
            program = pa.to_executorch(edge, (*exported.arenas, *arenas), in_place=in_place)
            yield of_arenas(f"{name} in arenas, in_place={in_place}", program)


def cells_of(rows: list[Planned]) -> list[list[str]]:
    """The results in bytes, with a line of headings."""
    methods = list(rows[0].own)
    own = [f"{method}'s own" for method in methods]
    cells = [["planned bytes", *own, "state", "scratch", "program"]]
    for row in rows:
        numbers = (*(row.own[method] for method in methods), row.state, row.scratch, row.program)
        cells.append([row.name, *(f"{number:,}" for number in numbers)])
    return cells


def table_of(rows: list[Planned]) -> Table:
    """Draws the results."""
    (first, *headings), *lines = cells_of(rows)
    table = Table(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(*line)
    return table


def markdown_of(rows: list[Planned]) -> str:
    """The results as a table of a document."""
    headings, *lines = cells_of(rows)
    cells = [headings, ["---", *["---:"] * (len(headings) - 1)], *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planned_bytes", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--markdown", action="store_true", help="print it for a document")
    parser.add_argument("--portable", action="store_true", help="lower without XNNPACK")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = list(measure(xnnpack=not arguments.portable))
    if arguments.json:
        json.dump([{**asdict(row), "program": row.program} for row in rows], sys.stdout, indent=2)
    elif arguments.markdown:
        print(markdown_of(rows))
    else:
        rich.print(table_of(rows))


if __name__ == "__main__":
    main()
