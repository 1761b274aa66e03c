"""Writes files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, which takes the place of `path` at the end.

    Where the block raises, what was at `path` stays there and nothing else is left.
    """
    sibling = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield sibling
        sibling.replace(path)
    finally:
        sibling.unlink(missing_ok=True)
