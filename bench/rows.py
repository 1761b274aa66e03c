"""Comparisons: what stock takes, what we take, and the ratio that is good enough."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
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
        unit: `s` for seconds, `s/token` for those of each token, `B` for bytes.
        goal: The largest ratio that is good enough; None where there is none.
        spread: The lowest and highest ratio of several turns, where turns give one each.
        bound: What the median ratio is below with a confidence of 95 %; the goal is for this then.
    """

    what: str
    against: str
    stock: float
    ours: float
    unit: str = "s"
    goal: float | None = None
    spread: tuple[float, float] | None = None
    bound: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.stock

    @property
    def met(self) -> bool:
        return self.goal is None or (self.bound or self.ratio) <= self.goal


def upper_bound(ratios: Sequence[float]) -> float | None:
    """What the median of all turns there could be is below, with a confidence of 95 % or more.

    The bound of the sign test: each turn is below the median with a chance of one half, whatever
    the distribution. Fewer than five turns say nothing.
    """
    total, above = 2 ** len(ratios), 0
    found = None
    for index, ratio in enumerate(sorted(ratios, reverse=True)):
        above += math.comb(len(ratios), index)
        if above / total > 0.05:
            break
        found = ratio
    return found


def compare(
    what: str,
    against: str,
    stock: Sequence[float],
    ours: Sequence[float],
    unit: str = "s",
    goal: float | None = None,
    *,
    pick: Callable[[Sequence[float]], float] = statistics.median,
    confident: bool = False,
) -> Row:
    """One of all turns, in each of which both sides were measured, and the spread of their ratios.

    Args:
        what: What is done.
        against: What is done in its place for comparison.
        stock: What each turn of the comparison took.
        ours: What each of ours took.
        unit: See `Row`.
        goal: See `Row`.
        pick: Which of the turns counts, such as `min` for the fastest.
        confident: Whether the goal has to be met with confidence: see `Row.bound`.
    """
    ratios = [mine / other for mine, other in zip(ours, stock, strict=True)]
    bound = upper_bound(ratios) if confident else None
    spread = min(ratios), max(ratios)
    return Row(what, against, pick(stock), pick(ours), unit, goal, spread, bound)


def as_json(rows: Iterable[Row]) -> str:
    return json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2)


def show(rows: Sequence[Row], title: str | None = None) -> None:
    table = Table(title=title)
    table.add_column("what")
    table.add_column("against")
    for heading in ("stock", "ours", "ratio", "spread", "95 % below", "goal"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.what,
            row.against,
            _number(row.stock, row.unit),
            _number(row.ours, row.unit),
            f"{row.ratio:.3g}" if row.met else f"[red]{row.ratio:.3g}[/red]",
            "" if row.spread is None else f"{row.spread[0]:.3g} to {row.spread[1]:.3g}",
            "" if row.bound is None else f"{row.bound:.3g}",
            "" if row.goal is None else f"≤ {row.goal:g}",
        )
    Console(width=150).print(table)


def _number(value: float, unit: str) -> str:
    if unit == "s/token":
        return f"{_number(value, 's')}, {1 / value:.3g}/s"
    for size, name in UNITS[unit]:
        if abs(value) >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value:,.3g} {unit}"
