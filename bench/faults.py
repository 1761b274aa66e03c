"""The faults of stock ExecuTorch, each of them really run: stock, eager PyTorch, pte-arenas.

Run it as `python -m bench.faults`, or with the numbers of faults, such as `F1 F20`. Every cell is
what a process of its own gave, since stock ends some of them. The exit status is 1 where
`pte-arenas` does not do what eager PyTorch does, or does not refuse what docs/faults.md says it
refuses; stock is only shown. All of them take some minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from bench.fault_cases import CASES
from bench.fault_runs import Case, Result, Value, eager, ours, stock
from bench.grid import Grid

Side = Callable[[Case], list[Result]]
ENDS = {signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "aborts"}
HEADINGS = ("id", "what is done", "stock gives", "eager", "pte-arenas")
_CONTEXT = multiprocessing.get_context("forkserver")  # imports once, and has no threads
_CONTEXT.set_forkserver_preload(["bench.fault_cases"])
TOLERANCE = 1e-4  # XNNPACK adds in another order


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with results, with an error, or with the end of its process."""

    results: list[Result] = field(default_factory=list)
    error: str = ""
    end: str = ""


@dataclass(frozen=True)
class Row:
    """A fault and what the three sides gave."""

    case: Case
    stock: Outcome
    eager: Outcome
    ours: Outcome

    @property
    def is_fault(self) -> bool:
        """Whether stock still differs from eager."""
        return not agree(self.stock, self.eager)

    @property
    def holds(self) -> bool:
        """Whether `pte-arenas` does what docs/faults.md says."""
        if self.case.refused:
            return self.ours.error.startswith("ArenaError: ")
        return agree(self.ours, self.eager)

    @property
    def cells(self) -> tuple[str, ...]:
        found = shown(self.stock, self.case)
        if self.stock.results:
            found += f": {self.case.why}" if self.is_fault else ", as eager"
        here = shown(self.ours, self.case)
        if self.case.refused and self.holds:
            here = f"refused: {here}"
        elif not self.holds:
            here = f"WRONG: {here}"
        return (self.case.fault, self.case.what, found, shown(self.eager, self.case), here)


def measure(faults: Sequence[str]) -> Iterator[Row]:
    """Runs cases, one process after another."""
    for fault in faults:
        yield Row(CASES[fault], *(in_process(fault, side) for side in (stock, eager, ours)))


def in_process(fault: str, side: Side) -> Outcome:
    """Runs a case on one side in a process of its own, which the side may end."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(fault, side, sender))
    process.start()
    sender.close()
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        outcome = Outcome(end="ends")
    process.join()
    code = process.exitcode or 0
    if code < 0:
        outcome = Outcome(end=ENDS.get(-code, f"ends with {signal.Signals(-code).name}"))
    return outcome


def _run(fault: str, side: Side, sender: Connection) -> None:
    """In the process: sends the outcome. What ExecuTorch logs goes nowhere."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    warnings.simplefilter("ignore")
    logging.disable()
    gc.freeze()  # else lowering goes through all of torch's objects again and again
    gc.set_threshold(100_000, 20, 100)
    try:
        outcome = Outcome(results=side(CASES[fault]))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what the column says
        outcome = Outcome(error=_described(error))
    sender.send(outcome)


def _described(error: Exception) -> str:
    """The class of an error and the start of what it says, on one line."""
    text = next(filter(None, map(str.strip, str(error).splitlines())), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def agree(one: Outcome, other: Outcome) -> bool:
    """Whether all outputs and all changed inputs are the same."""
    return bool(one.results) and (
        len(one.results) == len(other.results)
        and all(
            len(have.outputs) == len(want.outputs)
            and all(
                map(same, (*have.outputs, *have.inputs), (*want.outputs, *want.inputs)),
            )
            for have, want in zip(one.results, other.results, strict=True)
        )
    )


def same(have: Value, want: Value) -> bool:
    """Whether type, sizes and elements are the same."""
    return (have.kind, have.sizes) == (want.kind, want.sizes) and all(
        abs(x - y) <= TOLERANCE * max(1.0, abs(y))
        for x, y in zip(have.elements, want.elements, strict=True)
    )


def shown(outcome: Outcome, case: Case) -> str:
    """What a cell says: values, or how the run ended."""
    if outcome.end:
        return outcome.end
    if outcome.error:
        return f"`{textwrap.shorten(outcome.error, 90, placeholder=' …')}`"
    calls = []
    for result in outcome.results[-case.shown :]:
        text = " and ".join(number(value) for value in result.outputs if value.kind != "NoneType")
        if case.shows_inputs:
            text += "; the input is then " + " and ".join(map(number, result.inputs))
        calls.append(text)
    return (", " if all(" " not in text for text in calls) else "; ").join(calls)


def number(value: Value) -> str:
    """The elements; without brackets where there is one."""
    texts = [f"{element:.6g}" for element in value.elements]
    if len(texts) == 1:
        return texts[0]
    for size in reversed(value.sizes):
        texts = [f"[{', '.join(texts[i : i + size])}]" for i in range(0, len(texts), size)]
    return "".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="such as F1; all by default")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--markdown", action="store_true", help="print the table of docs/faults.md")
    options = parser.parse_args()
    if unknown := [fault for fault in options.faults if fault not in CASES]:
        parser.error(f"expected faults of docs/faults.md but found {', '.join(unknown)}")
    rows = []
    for row in measure(options.faults or list(CASES)):
        rows.append(row)
        print(f"{row.case.fault}: measured", file=sys.stderr, flush=True)
    grid = Grid(HEADINGS, [row.cells for row in rows])
    if options.json:
        records = [
            {**record, "is_fault": row.is_fault, "holds": row.holds}
            for record, row in zip(grid.records(), rows, strict=True)
        ]
        print(json.dumps(records, indent=2, ensure_ascii=False))
    elif options.markdown:
        print(grid.markdown())
    else:
        grid.show()
    sys.exit(not all(row.holds for row in rows))


if __name__ == "__main__":
    main()
