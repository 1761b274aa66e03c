"""Writes the C++ of documents to files that a test includes: `snippets.py FOLDER DOCUMENT...`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

FENCE = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Writes `memory_0.inc`, ... for the first, ... block of `memory.md`."""
    folder, *documents = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for document in documents:
        blocks = FENCE.findall(document.read_text(encoding="utf-8"))
        for index, code in enumerate(blocks):
            (folder / f"{document.stem}_{index}.inc").write_text(code, encoding="utf-8")


if __name__ == "__main__":
    main()
