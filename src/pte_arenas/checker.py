"""Checks a program file."""

from __future__ import annotations

import os

from pte_arenas.read import read_layout


def check(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> None:
    """Checks that a program keeps every rule of docs/checks.md.

    Args:
        source: Path of a `.pte` file, or its bytes.

    Raises:
        InvalidProgramError: With the path and the sentence of the first broken rule.
        OSError: The file cannot be read.
    """
    read_layout(source)
