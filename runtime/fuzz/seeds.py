"""Writes the files that fuzzing starts from.

FOLDER/table has every file that the tests of the checks know, FOLDER/program those that run.

Usage: seeds.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))

from corpus import file_with  # noqa: E402
from test_check import ACCEPTED, DAMAGED, REFUSED  # noqa: E402


def write_seeds(folder: Path, files: list[bytes]) -> None:
    """Writes files with numbers for names."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, data in enumerate(files):
        (folder / f"{index:03}.pte").write_bytes(data)
    print(f"{folder}: {len(files)} seeds")


def main(folder: Path) -> None:
    """Writes both folders."""
    golden = [path.read_bytes() for path in sorted(TESTS.glob("golden/*.pte"))]
    rules = [file_with(row.values[0]) for row in [*ACCEPTED, *REFUSED]]
    damaged = [row.values[0] for row in DAMAGED]
    write_seeds(folder / "table", golden + rules + damaged)
    write_seeds(folder / "program", golden)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
