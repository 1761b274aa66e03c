"""A table of texts: on the screen, as Markdown, as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Grid:
    """Rows of cells that may have Markdown in them.

    Attributes:
        headings: One for each column.
        rows: The cells.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def records(self) -> list[dict[str, str]]:
        """The rows as dicts, for JSON."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def markdown(self) -> str:
        """The lines of a table of Markdown."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in cells).replace(" --- ", "---")

    def show(self) -> None:
        """Prints it."""
        table = Table(*self.headings, show_lines=True)
        for row in self.rows:
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        Console(width=150).print(table)
