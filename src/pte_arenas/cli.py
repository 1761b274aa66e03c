"""The command `pte-arenas`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import escaped

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer(
    help="Program-scoped memory arenas for ExecuTorch.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file.")]


@app.command()
def inspect(
    file: ProgramFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show how a program's memory is laid out."""
    # Imported late, here and below, so that `pte-arenas --help` answers at once.
    from pte_arenas.read import read_layout  # noqa: PLC0415

    with _one_sentence(file):
        layout = read_layout(file)
    if as_json:
        report = {
            "layout": layout.model_dump(mode="json"),
            "planned_bytes": layout.planned_bytes,
            "unshared_bytes": layout.unshared_bytes,
        }
        typer.echo(json.dumps(report, indent=2))
        return
    from pte_arenas.render import draw_layout  # noqa: PLC0415

    _print(draw_layout(layout, file.name))


@app.command()
def check(file: ProgramFile) -> None:
    """Check that a program keeps every rule of the format."""
    from pte_arenas.checker import check as check_program  # noqa: PLC0415

    with _one_sentence(file):
        check_program(file)
    typer.echo(f"{escaped(str(file))}: valid")


@app.command()
def demo() -> None:
    """Export a small stateful model, run it and compare it with PyTorch."""
    from pte_arenas.demo import run_demo  # noqa: PLC0415
    from pte_arenas.render import draw_layout  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "running_mean.pte"
        layout, steps = run_demo(path)
    _print(draw_layout(layout, path.name))
    typer.echo("\ncall      program  eager PyTorch")
    for step in steps:
        if step.program is not None:
            typer.echo(f"{step.call:8}  {step.program:7.4f}  {step.eager:13.4f}")
        else:
            typer.echo(step.call)
    if any(step.program != step.eager for step in steps):
        typer.echo("the program and PyTorch disagree", err=True)
        raise typer.Exit(1)


def _print(text: Text) -> None:
    from rich.console import Console  # noqa: PLC0415

    Console().print(text, soft_wrap=True)


@contextmanager
def _one_sentence(file: Path) -> Iterator[None]:
    """Turns a bad or missing file into one sentence and exit status 1."""
    try:
        yield
    except InvalidProgramError as error:
        reason = str(error)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    else:
        return
    typer.echo(f"{escaped(str(file))}: {reason}", err=True)
    raise typer.Exit(1)


def main() -> None:
    """Entry point of the installed command."""
    app()
