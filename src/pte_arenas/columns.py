"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text


def rows_of(columns: Sequence[Sequence[str]], indent: int = 2) -> list[Text]:
    """Joins columns to lines."""
    margin = " " * indent
    return [Text(f"{margin}{'  '.join(cells)}".rstrip()) for cells in zip(*columns, strict=True)]


def left(cells: Sequence[str]) -> list[str]:
    """A column whose cells begin below each other."""
    width = max(map(len, cells), default=0)
    return [cell.ljust(width) for cell in cells]


def right(cells: Sequence[str]) -> list[str]:
    """A column whose cells end below each other."""
    width = max(map(len, cells), default=0)
    return [cell.rjust(width) for cell in cells]
