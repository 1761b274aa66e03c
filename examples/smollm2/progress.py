"""A progress bar over stages the length of which nobody knows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console


@contextmanager
def stages(console: Console, names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Shows which of the stages runs; yields a function to call when one begins."""
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(names))
        yield lambda name: progress.update(task, description=name, completed=names.index(name))
