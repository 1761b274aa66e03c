"""Comparisons: what stock takes, what we take, and the ratio that is good enough."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

UNITS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
}


@dataclass(frozen=True)
class Row:
    """One comparison, both sides measured in one run.

    Attributes:
        what: What is done.
        against: What is done in its place for comparison.
        stock: Median of the comparison.
        ours: Median of ours.
        unit: `s` for seconds, `B` for bytes.
        goal: The largest ratio that is good enough; None where there is none.
        spread: The lowest and highest ratio of several turns, where turns give one each.
    """

    what: str
    against: str
    stock: float
    ours: float
    unit: str = "s"
    goal: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.stock


def as_json(rows: Iterable[Row]) -> str:
    return json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2)


def show(rows: Sequence[Row], title: str | None = None) -> None:
    table = Table(title=title)
    table.add_column("what")
    table.add_column("against")
    for heading in ("stock", "ours", "ratio", "spread", "goal"):
        table.add_column(heading, justify="right")
    for row in rows:
        met = row.goal is None or row.ratio <= row.goal
        table.add_row(
            row.what,
            row.against,
            _number(row.stock, row.unit),
            _number(row.ours, row.unit),
            f"{row.ratio:.3g}" if met else f"[red]{row.ratio:.3g}[/red]",
            "" if row.spread is None else f"{row.spread[0]:.3g} to {row.spread[1]:.3g}",
            "" if row.goal is None else f"≤ {row.goal:g}",
        )
    Console(width=150).print(table)


def _number(value: float, unit: str) -> str:
    for size, name in UNITS[unit]:
        if abs(value) >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value:,.3g} {unit}"
