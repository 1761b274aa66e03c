"""What the commands share: arguments, printing and errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pte_arenas.errors import ArenaError, InvalidProgramError
from pte_arenas.rules.tensors import escaped

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from pte_arenas.layout import ProgramLayout

ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def columns() -> int | None:
    """Columns of the terminal that is printed to; None where it is none, such as a file."""
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    return console.width if console.is_terminal else None


def print_text(text: RenderableType) -> None:
    """Prints text with its styles; lines are not wrapped."""
    from rich.console import Console  # noqa: PLC0415

    Console().print(text, soft_wrap=True)


def print_json(report: object) -> None:
    """Prints a report for programs; floats that JSON lacks are `"NaN"`, `"Infinity"`, ..."""
    typer.echo(json.dumps(_finite(report), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def dumped(value: BaseModel) -> dict[str, Any]:
    """A value as JSON has it."""
    return value.model_dump(mode="json")


def sums(layout: ProgramLayout) -> dict[str, Any]:
    """What a program plans, in all and by method, with arenas and without.

    Methods also say how many bytes of each arena that they bind they use.
    """
    methods = {}
    for method, alone in zip(layout.methods, layout.unshared_by_method, strict=True):
        used = {layout.arenas[each.arena].name: each.used_bytes for each in method.bindings}
        planned = method.planned_bytes
        methods[method.name] = {
            "planned_bytes": planned,
            "unshared_bytes": alone,
            "used_bytes": used,
        }
    totals = {"planned_bytes": layout.planned_bytes, "unshared_bytes": layout.unshared_bytes}
    return totals | {"methods": methods}


@contextmanager
def one_sentence(
    file: Path, status: int = 1, words: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Turns a bad or missing file, or a wrong request, into one sentence and an exit status.

    Args:
        file: What it is about.
        status: The exit status.
        words: What the command line says in place of words of Python.
    """
    try:
        yield
    except (ArenaError, InvalidProgramError) as error:
        reason = str(error)
    except OSError as error:
        file = Path(error.filename or file)  # it may be another one
        reason = (error.strerror or str(error)).lower()
    else:
        return
    for python, command_line in (words or {}).items():
        reason = reason.replace(python, command_line)
    typer.echo(f"{escaped(str(file))}: {reason}", err=True)
    raise typer.Exit(status)
