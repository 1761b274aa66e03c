"""What our shared libraries export: generated code must not take over ExecuTorch's symbols."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest


def our_libraries() -> list[Path]:
    """Every shared library in the installed package."""
    spec = importlib.util.find_spec("pte_arenas")
    assert spec
    folders = map(Path, spec.submodule_search_locations or ())
    return sorted(library for folder in folders for library in folder.rglob("*.so"))


def exported_symbols(library: Path) -> list[str]:
    """Demangled names of the dynamic symbols that a library defines."""
    done = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", library],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split(maxsplit=2)[2] for line in done.stdout.splitlines()]


def test_there_are_libraries() -> None:
    assert our_libraries()


@pytest.mark.parametrize("library", our_libraries(), ids=lambda library: library.name)
def test_generated_code_is_hidden(library: Path) -> None:
    symbols = exported_symbols(library)
    assert symbols  # the module's entry, at least
    generated = ("executorch_flatbuffer", "pte_arenas::wire", "flatbuffers::")
    assert [symbol for symbol in symbols if any(name in symbol for name in generated)] == []
