"""Every measurement of the runtime beside stock ExecuTorch, in one table; see `make bench`.

Run it as `python -m bench --cpp FOLDER`, where FOLDER has the C++ programs of `bench/`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rich

from bench import calls, load, sessions, state
from bench.rows import Row, as_json, show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--cpp", type=Path, required=True, help="where the C++ programs are")
    parser.add_argument("--folder", type=Path, help="where to save; the disk matters")
    parser.add_argument("--json", type=Path, help="a file for the same as JSON")
    options = parser.parse_args()
    rows: list[Row] = []
    for name, measure in (
        ("loading", lambda: load.measure(options.cpp)),
        ("calls", lambda: calls.measure(options.cpp)),
        ("state", lambda: state.measure(options.folder)),
        ("sessions", sessions.measure),
    ):
        rich.print(f"measuring {name} …", file=sys.stderr)
        rows += measure()
    show(rows)
    if options.json:
        options.json.write_text(as_json(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
