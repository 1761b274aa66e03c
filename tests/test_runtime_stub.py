"""The types of the C++ module are written down, and as the module has them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from nanobind.stubgen import StubGen

import pte_arenas
from pte_arenas.runtime import _C

STUB = Path(pte_arenas.__file__).parent / "runtime" / "_C.pyi"


def without_style(text: str) -> str:
    """The syntax of a stub, whatever its comments, order of imports and indentation."""
    tree = ast.parse(text)
    tree.body.sort(key=lambda node: (not _is_import(node), _is_import(node) and ast.unparse(node)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    imports = (ast.Import, ast.ImportFrom)  # in any order
    tree.body.sort(key=lambda node: ast.unparse(node) if isinstance(node, imports) else "~")
    return ast.unparse(tree)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def test_stub_is_what_the_module_says() -> None:
    """To write it again: `python -m nanobind.stubgen -m pte_arenas.runtime._C`."""
    generator = StubGen(_C)
    generator.put(_C)
    assert without_style(STUB.read_text()) == without_style(generator.get())
