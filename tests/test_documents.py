"""What the documents show runs as it stands and prints what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import test_adopt

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "RFC.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _snippets() -> list[object]:
    found = []
    for path in DOCUMENTS:
        blocks = FENCE.findall(path.read_text(encoding="utf-8"))
        for index, (language, text) in enumerate(blocks):
            if language == "python":
                after = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
                printed = after[1] if after[0] == "text" else ""
                found.append(pytest.param(text, printed, id=f"{path.name}-{index}"))
    return found


def _commands() -> list[object]:
    """Commands on golden files, and what the document says that they print."""
    return [
        pytest.param(text, id=f"{path.name}-{index}")
        for path in DOCUMENTS
        for index, (language, text) in enumerate(FENCE.findall(path.read_text(encoding="utf-8")))
        if language == "console" and text.startswith("$ pte-arenas")
    ]


@pytest.mark.parametrize("text", _commands())
def test_commands(text: str, tmp_path: Path) -> None:
    for path in (ROOT / "tests" / "golden").glob("*.pte"):
        shutil.copy(path, tmp_path)
    (tmp_path / "old.pte").write_bytes(test_adopt.stock(5.0, names=True))
    told = ""
    for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
        run = subprocess.run(
            [sys.executable, "-m", *command.replace("pte-arenas", "pte_arenas", 1).split()],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        told += f"$ {command}\n{run.stdout}{run.stderr}"
    assert told == text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "printed"), _snippets())
def test_snippet(
    code: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(ROOT / "tests" / "golden" / "counter.pte", tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "snippet", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out == printed


def test_readme_has_the_commands_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for task in re.findall(r"`?make (\w+)`?", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{task}:", makefile, re.MULTILINE), task


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


def test_every_fault_has_a_test() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (F\d+) \|", text, re.MULTILINE)
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    marks = re.findall(r"pytest\.mark\.fault\(([^)]*)\)", tests)
    tested = {fault for mark in marks for fault in re.findall(r'"(F\d+)"', mark)}
    tested |= set(re.findall(r'^ *(?:CONFIGS\[)?"(F\d+)\b[^"]*"\]?(?:: | = )', tests, re.MULTILINE))
    assert len(listed) == len(set(listed)) > 0
    assert set(listed) == tested
