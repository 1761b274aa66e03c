"""Draws differences and budgets for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from pte_arenas.budgets import BudgetLine, BudgetReport, MemoryPart
from pte_arenas.columns import left, right, rows_of
from pte_arenas.differences import Difference
from pte_arenas.render import NAME_STYLE
from pte_arenas.rules.tensors import escaped
from pte_arenas.sizes import counted, in_bytes


def draw_differences(
    differences: Sequence[Difference], before: str, after: str, *, none: str = "the same layout"
) -> Text:
    """Draws what differs between two layouts.

    Args:
        differences: What to draw.
        before: Name of the first program, such as its file name.
        after: Name of the second one.
        none: What to say where there are none.
    """
    breaking = [each for each in differences if each.breaks_saved_state]
    others = [each for each in differences if not each.breaks_saved_state]
    found = counted(len(differences), "difference") if differences else none
    lines = [
        Text.assemble(
            (escaped(before), NAME_STYLE), " -> ", (escaped(after), NAME_STYLE), f"  {found}"
        )
    ]
    for title, group in (("breaks saved states", breaking), ("layout only", others)):
        if group:
            lines += [Text(), Text(title), *_difference_lines(group)]
    return Text("\n").join(lines)


def _difference_lines(differences: Sequence[Difference]) -> list[Text]:
    columns = [
        left([each.where for each in differences]),
        left([each.field for each in differences]),
        [_change(each) for each in differences],
    ]
    return rows_of(columns)


def _change(difference: Difference) -> str:
    before, after = (
        f"{value:,}" if isinstance(value, int) else value
        for value in (difference.before, difference.after)
    )
    if difference.field == "":
        return f"added: {after}" if before is None else f"removed: {before}"
    return f"{'none' if before is None else before} -> {'none' if after is None else after}"


def draw_budget(report: BudgetReport, title: str) -> Text:
    """Draws limits with what takes the memory of those that are exceeded.

    Args:
        report: What to draw.
        title: Name of the program, such as its file name.
    """
    broken = sum(line.excess > 0 for line in report.lines)
    verdict = f"{counted(broken, 'limit')} exceeded" if broken else "within budget"
    lines = [Text.assemble((escaped(title), NAME_STYLE), f"  {verdict}"), Text()]
    columns = [
        left([escaped(line.name) for line in report.lines]),
        right([f"{line.planned:,}" for line in report.lines]),
        right([f"of {line.limit:,}" for line in report.lines]),
        [_verdict(line) for line in report.lines],
    ]
    lines += rows_of(columns)
    for line in report.lines:
        if line.excess > 0:
            lines += [Text(), Text(f"{escaped(line.name)}: {line.meaning}"), *_part_lines(line)]
    return Text("\n").join(lines)


def _verdict(line: BudgetLine) -> str:
    if line.excess > 0:
        return f"{in_bytes(line.excess)} too many"
    return f"{in_bytes(-line.excess)} left"


def _part_lines(line: BudgetLine) -> Iterator[Text]:
    parts = [part for part in line.parts if part.nbytes]
    columns = [
        right([f"{part.nbytes:,}" for part in parts]),
        right([f"{part.nbytes / line.planned:.0%}" for part in parts]),
        [_heading(part) for part in parts],
    ]
    for part, heading in zip(parts, rows_of(columns), strict=True):
        yield heading
        sizes = right([f"{each.nbytes:,}" for each in part.largest])
        for size, occupant in zip(sizes, part.largest, strict=True):
            yield Text(f"        {size}  {escaped(occupant.name)}")


def _heading(part: MemoryPart) -> str:
    heading = f"{part.kind} {escaped(part.name)}"
    if part.memory_id is not None:
        heading += f", memory id {part.memory_id}"
    if not part.at:
        return heading
    user = f" in {escaped(part.user)}" if part.user else ""
    return f"{heading}; {part.peak:,} live{user} at instruction {escaped(part.at)}"
