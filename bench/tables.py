"""Tables of documents that commands of `bench/` make: writes them again, or checks them.

Run it as `python -m bench.tables docs/*.md`, or with `--check`, which changes nothing and ends with
status 1 where a table is not what its command prints. A table stands between two comments:

    <!-- begin: python -m bench.matrix --markdown -->
    <!-- end -->

Only modules of `bench/` can be run, with plain words as arguments.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHEAP = ("bench.matrix",)
"""Modules that take less than a minute."""

_TABLE = re.compile(
    r"^<!-- begin: (?P<command>[^\n]*) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
_COMMAND = re.compile(r"python -m (?P<module>bench\.\w+)(?: [\w-]+)*")
_MARK = re.compile(r"^<!-- (?:begin\b.*|end) -->$", re.MULTILINE)


class MarkerError(ValueError):
    """A marker is not as this module's documentation says."""


def rewritten(text: str, run: Callable[[str], str], *, cheap: bool = False) -> str:
    """A document with its tables made again.

    Args:
        text: The document.
        run: Gives what a command prints.
        cheap: Whether to leave out what takes more than a minute.

    Raises:
        MarkerError: A marker has another command, or lacks its partner.
    """

    def replace(table: re.Match[str]) -> str:
        command = table["command"]
        module = module_of(command)
        if cheap and module not in CHEAP:
            return table[0]
        return f"<!-- begin: {command} -->\n\n{run(command).strip()}\n\n<!-- end -->"

    tables = list(_TABLE.finditer(text))
    marks = [mark[0] for mark in _MARK.finditer(text)]
    expected = [
        mark for table in tables for mark in (f"<!-- begin: {table['command']} -->", "<!-- end -->")
    ]
    if marks != expected:
        raise MarkerError(
            f"expected '<!-- begin: COMMAND -->' and '<!-- end -->' in turn but found {marks}"
        )
    return _TABLE.sub(replace, text)


def module_of(command: str) -> str:
    """The module that a command runs.

    Raises:
        MarkerError: It is not `python -m bench.MODULE` with plain words.
    """
    match = _COMMAND.fullmatch(command)
    if match is None:
        raise MarkerError(
            f"expected 'python -m bench.MODULE' with plain words after it but found {command!r}"
        )
    return match["module"]


@functools.cache
def printed(command: str) -> str:
    """What a command prints. Its messages go where ours go.

    Raises:
        subprocess.CalledProcessError: It fails.
    """
    module_of(command)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *shlex.split(command)[1:]],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="documents")
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--cheap", action="store_true", help=f"only tables of {', '.join(CHEAP)}")
    options = parser.parse_args()
    is_stale = False
    for file in options.files:
        before = file.read_text(encoding="utf-8")
        try:
            after = rewritten(before, printed, cheap=options.cheap)
        except MarkerError as error:
            parser.error(f"{file}: {error}")
        if options.check:
            lines = difflib.unified_diff(
                before.splitlines(keepends=True), after.splitlines(keepends=True), str(file), "made"
            )
            is_stale |= before != after
            sys.stdout.writelines(lines)
        elif before != after:
            file.write_text(after, encoding="utf-8")
    sys.exit(is_stale)


if __name__ == "__main__":
    main()
