"""Which runtime does what with which file, by running them all.

Run it as `python -m bench.matrix`. Files: those that stock ExecuTorch makes by default and with
`share_mutable_buffers=True`, one whose arenas are required, and one whose are not. The C++
application over ExecuTorch's `Module` is compiled for it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pte_arenas as pa
from bench import stock_module
from bench.grid import Grid
from bench.shared_state import (
    Outputs,
    emit,
    emit_stock,
    emit_stock_sharing,
    run_module,
    run_ours,
    run_stock,
    verdict,
)

SHARING = "without arenas, `share_mutable_buffers=True`"
FILES: dict[str, Callable[[float], bytes]] = {
    "without arenas": emit_stock,
    SHARING: emit_stock_sharing,
    "arenas required": partial(emit, require_arenas=True),
    "arenas not required": emit,
}
ORDERS = {
    "all methods loaded before the first call": (5.0, True),
    "each loaded at its first call": (5.0, False),
    "the same, shared state starts as zeros": (0.0, False),
}
HEADINGS = ("file", "runtime", *ORDERS)
REFUSALS = (RuntimeError, stock_module.RefusedError, pa.ArenaError)


def runtimes(program: Path, folder: Path, file: str) -> dict[str, Callable[..., Outputs]]:
    """By name, what runs calls of a file."""

    def module(memory: str) -> Callable[..., Outputs]:
        def run(data: bytes, *, first: bool, calls: Sequence[str]) -> Outputs:
            return run_module(program, data, memory, folder, first=first, calls=calls)

        return run

    told = {
        "`pte_arenas.runtime`, `shared_memory_ids=(2,)`": partial(run_ours, shared_memory_ids=(2,))
    }
    return {
        "`executorch.runtime`": run_stock,
        "C++ `Module`": module("private"),
        "C++ `Module`, `share_memory_arenas=true`": module("shared"),
        "`pte_arenas.runtime`": run_ours,
        **(told if file == SHARING else {}),
    }


def cell(run: Callable[..., Outputs], data: bytes, start: float, *, first: bool) -> str:
    """What comes out: a verdict, or how the runtime refuses the file."""
    try:
        return verdict(start, lambda calls: run(data, first=first, calls=calls))
    except REFUSALS as error:
        return f"refused: `{textwrap.shorten(str(error), 80, placeholder=' …')}`"


def measure() -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        program = stock_module.build(folder)
        for file, make in FILES.items():
            data = {start: make(start) for start in {start for start, _ in ORDERS.values()}}
            for name, run in runtimes(program, folder, file).items():
                cells = (
                    cell(run, data[start], start, first=first) for start, first in ORDERS.values()
                )
                yield (file, name, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.matrix", description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    grid = Grid(HEADINGS, list(measure()))
    if options.json:
        print(json.dumps(grid.records(), indent=2, ensure_ascii=False))
    elif options.markdown:
        print(grid.markdown())
    else:
        grid.show()


if __name__ == "__main__":
    main()
