"""The command `pte-arenas`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pte_arenas import seeing
from pte_arenas.console import (
    AsJson,
    ProgramFile,
    columns,
    dumped,
    one_sentence,
    print_json,
    print_text,
    sums,
)
from pte_arenas.dtypes import name_of
from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import LONGEST_LIST, escaped, quoted
from pte_arenas.sizes import counted, in_bytes

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_cmake_dir(wanted: bool) -> None:
    if wanted:
        typer.echo(Path(__file__).parent / "share" / "cmake")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--cmake-dir",
            callback=_print_cmake_dir,
            is_eager=True,
            help="Print the folder of the CMake package, for pte_arenas_DIR.",
        ),
    ] = False,
) -> None:
    """Program-scoped memory arenas for ExecuTorch."""


@app.command()
def inspect(
    file: ProgramFile,
    as_json: AsJson = False,
) -> None:
    """Show how a program's memory is laid out."""
    # Imported late, here and below, so that `pte-arenas --help` answers at once.
    from pte_arenas.read import read_layout  # noqa: PLC0415

    with one_sentence(file):
        layout = read_layout(file)
    if as_json:
        print_json(sums(layout) | {"layout": dumped(layout)})
        return
    from pte_arenas.render import draw_layout  # noqa: PLC0415

    print_text(draw_layout(layout, file.name, columns()))


app.command(name="map")(seeing.draw_map)
app.command()(seeing.diff)
app.command()(seeing.budget)


@app.command()
def check(file: ProgramFile, as_json: AsJson = False) -> None:
    """Check that a program keeps every rule of the format."""
    from pte_arenas.checker import check as check_program  # noqa: PLC0415

    with one_sentence(file):
        try:
            check_program(file)
        except InvalidProgramError as error:
            if as_json:
                print_json({"valid": False, "where": error.where, "message": error.message})
            raise
    if as_json:
        print_json({"valid": True})
    else:
        typer.echo(f"{escaped(str(file))}: valid")


@app.command()
def adopt(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A .pte file without arenas.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The file to write.")],
    memory_id: Annotated[int, typer.Option(help="The memory id that the methods share.")] = 2,
    name: Annotated[str | None, typer.Option(help="Name of the arena.")] = None,
    require_arenas: Annotated[
        bool, typer.Option(help="Let runtimes without arenas refuse the new file.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Make memory that the methods of a stock file share an arena."""
    from pte_arenas.adopter import adopt as adopt_program  # noqa: PLC0415

    with one_sentence(old):
        layout = adopt_program(old, new, memory_id, name=name, require_arenas=require_arenas)
    if as_json:
        print_json(sums(layout) | {"layout": dumped(layout)})
        return
    (arena,) = layout.arenas
    users = counted(sum(bool(method.bindings) for method in layout.methods), "method")
    size, slots = in_bytes(arena.size), counted(len(arena.slots), "slot")
    typer.echo(
        f"{escaped(str(new))}: memory id {memory_id} of {users} is arena {quoted(arena.name)}, "
        f"{size} with {slots}"
    )
    zeros = [quoted(slot.fqn) for slot in arena.slots if slot.nbytes and not slot.data_buffer_idx]
    if zeros:
        more = ", ..." if len(zeros) > LONGEST_LIST else ""
        typer.echo(
            "these slots start as zeros, since the file has no other values for them: "
            f"{', '.join(zeros[:LONGEST_LIST])}{more}"
        )


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .bpte file.")],
    keep_state: Annotated[
        bool, typer.Option(help="Let a suite go on with the state that the one before it left.")
    ] = False,
    rtol: Annotated[float, typer.Option(min=0, help="Relative tolerance of floats.")] = 1e-5,
    atol: Annotated[float, typer.Option(min=0, help="Absolute tolerance of floats.")] = 1e-8,
    data_path: Annotated[
        Path | None, typer.Option("--data", help="A .ptd file that the program needs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the test suites of a bundled program."""
    with one_sentence(file):
        file.open("rb").close()  # before the runtime is imported, which takes long
        from pte_arenas.verification import verify as verify_bundle  # noqa: PLC0415

        report = verify_bundle(
            file, keep_state=keep_state, rtol=rtol, atol=atol, data_path=data_path
        )
    if as_json:
        print_json(dumped(report) | {"passed": report.passed})
    else:
        from pte_arenas.render import draw_report  # noqa: PLC0415

        print_text(draw_report(report, file.name))
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def run(
    file: ProgramFile,
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...", help="What to run.")],
    fill: Annotated[
        float, typer.Option(help="What fills inputs that --inputs does not have.")
    ] = 1.0,
    inputs: Annotated[
        Path | None, typer.Option(help="An .npz file with arrays named METHOD.INDEX.")
    ] = None,
    load_state: Annotated[Path | None, typer.Option(help="A state file to begin with.")] = None,
    allow_other_program: Annotated[
        bool,
        typer.Option("--allow-other-program", help="Take the state of another one."),
    ] = False,
    save_state: Annotated[Path | None, typer.Option(help="Where to save the state.")] = None,
    data_path: Annotated[
        Path | None, typer.Option("--data", help="A .ptd file that the program needs.")
    ] = None,
    shared_memory_id: Annotated[
        int | None, typer.Option(help="Of a stock file: the memory id that its methods share.")
    ] = None,
    unshared: Annotated[
        bool, typer.Option("--unshared", help="Of a stock file: methods share no memory.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run methods one after the other over one state."""
    from pte_arenas.runner import run_methods  # noqa: PLC0415

    known = None if shared_memory_id is None else (shared_memory_id,)
    shared: tuple[int, ...] | None = () if unshared else known
    words = {
        "shared_memory_ids: ": "",
        "; (2,) if it was": "; --shared-memory-id 2 if it was",
        "share_mutable_buffers=True, else ()": "share_mutable_buffers=True, else --unshared",
        "allow_other_program=True": "--allow-other-program",
    }
    with one_sentence(file, words=words):
        calls = run_methods(
            file,
            methods,
            fill=fill,
            inputs=inputs,
            load_state=load_state,
            save_state=save_state,
            data_path=data_path,
            allow_other_program=allow_other_program,
            shared_memory_ids=shared,
        )
        if as_json:
            report = [
                {"method": call.method, "outputs": [_as_json(value) for value in call.outputs]}
                for call in calls
            ]
            print_json(report)
            return
        from pte_arenas.render import draw_value  # noqa: PLC0415

        for call in calls:
            typer.echo(escaped(call.method))
            for index, value in enumerate(call.outputs):
                typer.echo(f"  {index}  {draw_value(value)}")


def _as_json(value: Any) -> Any:
    """An output: tensors as lists of their elements, with dtype and sizes."""
    if not hasattr(value, "tolist"):
        return value
    return {"dtype": name_of(value.dtype), "sizes": list(value.shape), "values": value.tolist()}


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Export a small stateful model, run it and compare it with PyTorch."""
    from pte_arenas.demo import run_demo  # noqa: PLC0415
    from pte_arenas.render import draw_layout  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "running_mean.pte"
        layout, steps = run_demo(path)
    if as_json:
        print_json({"layout": dumped(layout), "steps": [asdict(step) for step in steps]})
    else:
        print_text(draw_layout(layout, path.name))
        typer.echo("\ncall      program  eager PyTorch")
        for step in steps:
            if step.program is not None:
                typer.echo(f"{step.call:8}  {step.program:7.4f}  {step.eager:13.4f}")
            else:
                typer.echo(step.call)
    if any(step.program != step.eager for step in steps):
        typer.echo("the program and PyTorch disagree", err=True)
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the installed command."""
    try:
        app()
    except OSError as error:  # of files, commands have spoken themselves
        typer.echo(f"standard output: {(error.strerror or str(error)).lower()}", err=True)
        sys.exit(1)
