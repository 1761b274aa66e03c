"""Tables of documents are what their commands print."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bench import tables
from bench.tables import MarkerError, module_of, rewritten

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "RFC.md", *sorted((ROOT / "docs").glob("*.md"))]
BEGIN = "<!-- begin: python -m bench.matrix --markdown -->"
TEXT = f"before\n\n{BEGIN}\nold\n<!-- end -->\n\nafter\n"


def never(command: str) -> str:
    raise AssertionError(command)


def test_tables_are_made_again() -> None:
    asked: list[str] = []

    def run(command: str) -> str:
        asked.append(command)
        return "| new |\n"

    made = rewritten(TEXT * 2, run)
    assert made == f"before\n\n{BEGIN}\n\n| new |\n\n<!-- end -->\n\nafter\n" * 2
    assert rewritten(made, run) == made
    assert asked == ["python -m bench.matrix --markdown"] * 4
    assert rewritten("no table", run) == "no table"


def test_expensive_tables_may_stay() -> None:
    assert "bench.faults" not in tables.CHEAP
    text = TEXT.replace("matrix", "faults")
    assert rewritten(text, never, cheap=True) == text


@pytest.mark.parametrize(
    "command",
    [
        "python -m bench.faults; rm -rf .",
        "python -m bench.faults $HOME",
        "python -m bench.faults > file",
        "python -m bench.sub.module",
        "python -m pytest",
        "python -c pass",
        "rm file",
    ],
)
def test_other_commands_are_refused(command: str) -> None:
    text = TEXT.replace("python -m bench.matrix --markdown", command)
    with pytest.raises(MarkerError, match=r"^expected 'python -m bench\.MODULE' with plain words"):
        rewritten(text, never)


@pytest.mark.parametrize(
    "text",
    [BEGIN + "\n", "<!-- end -->\n", TEXT + BEGIN + "\n", f"{BEGIN}\n{TEXT}"],
    ids=["begin", "end", "second", "nested"],
)
def test_markers_come_in_pairs(text: str) -> None:
    with pytest.raises(MarkerError, match=r"^expected '<!-- begin: COMMAND -->' and"):
        rewritten(text, never)


def test_command(tmp_path: Path) -> None:
    """Checks and writes, with a command that is quick: help."""
    file = tmp_path / "document.md"
    file.write_text(TEXT.replace("matrix --markdown", "tables --help"), encoding="utf-8")
    before = file.read_text(encoding="utf-8")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bench.tables", *options, file]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    check = run("--check")
    assert check.returncode == 1
    assert "-old\n" in check.stdout and "+usage: python -m bench.tables" in check.stdout
    assert file.read_text(encoding="utf-8") == before
    assert run().returncode == 0
    assert "usage: python -m bench.tables" in file.read_text(encoding="utf-8")
    assert run("--check").returncode == 0
    file.write_text(BEGIN + "\n", encoding="utf-8")
    assert "document.md: expected '<!-- begin: COMMAND -->'" in run("--check").stderr


def test_cheap_tables_are_not_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, where lowering is faster; each command once for all documents."""

    @functools.cache
    def run(command: str) -> str:
        monkeypatch.setattr(sys, "argv", command.split()[2:])
        importlib.import_module(module_of(command)).main()
        return capsys.readouterr().out

    texts = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    assert {name: rewritten(text, run, cheap=True) for name, text in texts.items()} == texts
