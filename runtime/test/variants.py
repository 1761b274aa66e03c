"""Tells whether one binary can hold the portable and the ATen variant, which offer the same.

Usage: variants.py PORTABLE_ARCHIVE ATEN_ARCHIVE
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PORTABLE, ATEN = "executorch::extension::arenas::", "executorch::extension::arenas::aten::"


def link(archives: list[str]) -> None:
    """Links all of both into one object; the linker refuses a symbol that is defined twice."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["ld", "-r", "--whole-archive", *archives, "-o", Path(folder) / "both.o"],  # noqa: S607
            check=True,
        )


def functions(archive: str, namespace: str) -> set[str]:
    """Names of the functions that only this archive defines, relative to a namespace."""
    listed = subprocess.run(
        ["nm", "--defined-only", "--extern-only", "--demangle", archive],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    names = {row[2].partition("(")[0] for row in rows if len(row) == 3 and row[1] == "T"}
    strangers = sorted(name for name in names if not name.startswith(namespace))
    if strangers:
        sys.exit(f"{archive}: expected symbols in {namespace} only but found {strangers}")
    return {name.removeprefix(namespace) for name in names}


def main(portable: str, aten: str) -> None:
    """Compares the two archives."""
    link([portable, aten])
    ours, theirs = functions(portable, PORTABLE), functions(aten, ATEN)
    if "Session::create" not in ours or ours != theirs:
        sys.exit(f"expected the same functions in both variants but found {sorted(ours ^ theirs)}")


main(*sys.argv[1:])
