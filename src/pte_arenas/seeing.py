"""The commands that draw a program's memory and compare it: `map`, `diff` and `budget`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pte_arenas.console import (
    AsJson,
    ProgramFile,
    dumped,
    one_sentence,
    print_json,
    print_text,
    sums,
)
from pte_arenas.errors import ArenaError
from pte_arenas.rules.tensors import escaped, quoted
from pte_arenas.sizes import parse_assignment, parse_size

if TYPE_CHECKING:
    from pte_arenas.layout import ProgramLayout
    from pte_arenas.timeline import ProgramTimeline


def draw_map(
    file: ProgramFile,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="MAP", help="A .html or .svg file to write."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw arenas, slots and what each method keeps in memory over its instructions."""
    from pte_arenas.lifetimes import read_both  # noqa: PLC0415

    if output is None and not as_json:
        raise typer.BadParameter("expected -o MAP.html, -o MAP.svg or --json")
    if output is not None and output.suffix.lower() not in {".html", ".svg"}:
        raise typer.BadParameter(
            f"expected a path that ends with .html or .svg but found {quoted(str(output))}"
        )
    with one_sentence(file):
        layout, timeline = read_both(file)
        if output is not None:
            _write_map(output, layout, timeline, file.name)
    if as_json:
        print_json(sums(layout) | {"layout": dumped(layout), "timeline": dumped(timeline)})
    else:
        typer.echo(f"{escaped(str(output))}: written")


def _write_map(output: Path, layout: ProgramLayout, timeline: ProgramTimeline, title: str) -> None:
    from pte_arenas.files import replacing  # noqa: PLC0415
    from pte_arenas.maps import draw_html, draw_svg  # noqa: PLC0415

    draw = draw_html if output.suffix.lower() == ".html" else draw_svg
    text = draw(layout, timeline, title)
    with replacing(output) as sibling:
        sibling.write_text(text, encoding="utf-8")


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A .pte file.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another .pte file.")],
    saved_state: Annotated[
        bool,
        typer.Option("--saved-state", help="Show, and fail for, only what breaks saved states."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two layouts: exit status 0 if they are the same, 1 if not, 2 on a bad file."""
    from pte_arenas.differences import diff as diff_layouts  # noqa: PLC0415
    from pte_arenas.read import read_layout  # noqa: PLC0415

    layouts = []
    for file in (before, after):
        with one_sentence(file, status=2):
            layouts.append(read_layout(file))
    found = diff_layouts(*layouts)
    breaking = tuple(each for each in found if each.breaks_saved_state)
    shown = breaking if saved_state else found
    if as_json:
        print_json(
            {
                "same": not found,
                "breaks_saved_state": bool(breaking),
                "differences": [dumped(each) for each in shown],
            }
        )
    else:
        from pte_arenas.reports import draw_differences  # noqa: PLC0415

        none = "nothing that breaks saved states" if found else "the same layout"
        print_text(draw_differences(shown, before.name, after.name, none=none))
    if shown:
        raise typer.Exit(1)


def budget(
    file: ProgramFile,
    limits: Annotated[
        list[str],
        typer.Option(
            "--limit",
            metavar="NAME=SIZE",
            help="At most so many bytes (512K, 2M, ...) of total, arena:NAME, method:NAME, id:N or "
            "a region. Can be repeated.",
        ),
    ],
    regions: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            metavar="NAME=MEMORY,...",
            help="A name for several of these together, such as SRAM=arena:tmp,id:1. Can be "
            "repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare planned bytes with limits: exit status 0 if kept, 1 if not, 2 on a bad file."""
    from pte_arenas.budgets import check_budget  # noqa: PLC0415

    sizes, memories = _assignments(limits, "--limit"), _assignments(regions or [], "--region")
    with one_sentence(file, status=2):
        report = check_budget(
            file,
            {name: _size(text) for name, text in sizes.items()},
            {name: [each.strip() for each in text.split(",")] for name, text in memories.items()},
        )
    if as_json:
        print_json({"kept": report.kept} | dumped(report))
    else:
        from pte_arenas.reports import draw_budget  # noqa: PLC0415

        print_text(draw_budget(report, file.name))
    if not report.kept:
        raise typer.Exit(1)


def _assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        try:
            name, value = parse_assignment(text)
        except ArenaError as error:
            raise typer.BadParameter(f"{option}: {error}") from None
        if name in found:
            raise typer.BadParameter(f"{option}: expected {quoted(name)} once but found it again")
        found[name] = value
    return found


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ArenaError as error:
        raise typer.BadParameter(f"--limit: {error}") from None
