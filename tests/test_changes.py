"""The list of changes that RFC.md shows has every file once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.changes import PARTS, ROOT, code_lines

PATTERNS = (
    "src/pte_arenas/**/*.py",
    "runtime/src/*",
    "runtime/include/**/*.h",
    "runtime/python/*.cpp",
    "runtime/python/*.h",
    "schema/*.fbs",
)


def test_every_file_is_in_one_part() -> None:
    counts = Counter(path for part in PARTS for path in part.paths())
    files = {path for pattern in PATTERNS for path in ROOT.glob(pattern)}
    assert {path.relative_to(ROOT) for path in files ^ set(counts)} == set()
    assert {path for path, count in counts.items() if count > 1} == set()
    assert all(part.lines() > 0 for part in PARTS)


def test_lines_are_those_with_code(tmp_path: Path) -> None:
    python, cpp = tmp_path / "a.py", tmp_path / "a.cpp"
    python.write_text(
        '"""A\n\ndocstring."""\n\n# comment\nx = """two\nlines"""\n\n\n'
        'def f():  # one\n    """Doc."""\n    return x\n'
    )
    cpp.write_text("/* a\n\nb */\n// comment\n\nint x;  // one\nint y;\n")
    assert (code_lines(python), code_lines(cpp)) == (4, 2)
