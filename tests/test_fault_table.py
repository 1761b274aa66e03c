"""The table of docs/faults.md: its faults are all run by bench/faults.py, which makes it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bench.fault_cases import CASES
from bench.fault_runs import Case, Result, Value
from bench.faults import HEADINGS, Outcome, Row, agree, in_process, measure, number, shown
from bench.grid import Grid

DOCUMENT = Path(__file__).parent.parent / "docs" / "faults.md"
SOME = ("F2", "F14", "F21", "F24")
"""Values, a refusal, an error: cases that take a few seconds."""


def test_every_fault_of_the_document_is_run() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert list(CASES) == re.findall(r"^\| (F\d+) \|", text, re.MULTILINE)
    for fault, case in CASES.items():
        assert f"| {fault} | {case.what} |" in text


@pytest.mark.parametrize("fault", SOME)
def test_rows_are_what_runs_give(fault: str) -> None:
    (row,) = measure([fault])
    assert row.is_fault
    assert row.holds
    line = Grid(HEADINGS, [row.cells]).markdown().splitlines()[-1]
    assert line in DOCUMENT.read_text(encoding="utf-8").splitlines()


def abort(_: Case) -> list[Result]:
    os.abort()


def fail(_: Case) -> list[Result]:
    raise ValueError("\n first | line \nsecond line")


def leave(_: Case) -> list[Result]:
    os._exit(0)


@pytest.mark.parametrize(
    ("side", "cell"),
    [(abort, "aborts"), (fail, "`ValueError: first | line`"), (leave, "ends")],
)
def test_how_processes_end(side: object, cell: str) -> None:
    outcome = in_process("F1", side)
    assert shown(outcome, CASES["F1"]) == cell
    assert not agree(outcome, outcome)


def _outcome(*values: Value, inputs: tuple[Value, ...] = ()) -> Outcome:
    return Outcome(results=[Result(values, inputs)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Value("float32", (1,), (1.0,)), Value("float32", (1,), (1.1,))),
        (Value("float32", (1,), (1.0,)), Value("int64", (1,), (1,))),
        (Value("float32", (1,), (1.0,)), Value("float32", (), (1.0,))),
        (Value("float32", (1,), (float("nan"),)), Value("float32", (1,), (1.0,))),
    ],
    ids=["element", "dtype", "sizes", "nan"],
)
def test_what_differs(one: Value, other: Value) -> None:
    assert agree(_outcome(one), _outcome(one)) or one.elements[0] != one.elements[0]
    assert not agree(_outcome(one), _outcome(other))
    assert not agree(_outcome(one), _outcome(one, one))
    assert not agree(_outcome(other, inputs=(one,)), _outcome(other, inputs=(other,)))


def test_ours_must_do_what_eager_does_or_refuse() -> None:
    right, wrong = (_outcome(Value("float32", (1,), (x,))) for x in (1.0, 2.0))
    refused = Outcome(error="ArenaError: state must be a buffer")
    for fault, ours, holds in (
        ("F1", right, True),
        ("F1", wrong, False),
        ("F1", refused, False),
        ("F14", refused, True),
        ("F14", wrong, False),
        ("F14", Outcome(error="AssertionError"), False),
    ):
        row = Row(CASES[fault], stock=wrong, eager=right, ours=ours)
        assert row.is_fault
        assert row.holds == holds
        assert row.cells[-1].startswith("WRONG: ") != holds
    assert not Row(CASES["F1"], stock=right, eager=right, ours=right).is_fault


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value("float32", (), (1.5,)), "1.5"),
        (Value("float32", (1, 1), (2.0,)), "2"),
        (Value("float32", (2,), (1.0, 2.0)), "[1, 2]"),
        (Value("float32", (2, 2), (1.0, 2.0, 3.0, 4.0)), "[[1, 2], [3, 4]]"),
    ],
)
def test_how_values_are_written(value: Value, text: str) -> None:
    assert number(value) == text
