"""Every measurement beside stock ExecuTorch, in one table; see `make bench`.

Run it as `python -m bench --cpp FOLDER`, where FOLDER has the C++ programs of `bench/`. The
language model comes last, if its programs are there: exporting them takes most of an hour, and
`python -m examples.smollm2 bench` does it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import rich

from bench import calls, emit_overhead, load, sessions, state
from bench.rows import Row, as_json, show
from examples.smollm2.bench import compare_programs, paths_in


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--cpp", type=Path, required=True, help="where the C++ programs are")
    parser.add_argument("--folder", type=Path, help="where to save; the disk matters")
    parser.add_argument("--json", type=Path, help="a file for the same as JSON")
    options = parser.parse_args()
    rows: list[Row] = []
    model = paths_in((options.folder or Path()) / "smollm2", context=2048)
    measures: list[tuple[str, Callable[[], list[Row]]]] = [
        ("emitting", emit_overhead.rows),
        ("loading", lambda: load.measure(options.cpp)),
        ("calls", lambda: calls.measure(options.cpp)),
        ("state", lambda: state.measure(options.folder)),
        ("sessions", sessions.measure),
    ]
    if all(path.exists() for path in model.values()):
        language_model = ("the language model", lambda: list(compare_programs(model, turns=8)))
        measures.append(language_model)
    for name, measure in measures:
        rich.print(f"measuring {name} …", file=sys.stderr)
        rows += measure()
    show(rows)
    if options.json:
        options.json.write_text(as_json(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
