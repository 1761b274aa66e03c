"""Writes files whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Gives a path beside `path` to write to, which takes the place of `path` at the end.

    Where the block raises, what was at `path` stays there and nothing else is left. A symbolic link
    stays one: the file that it leads to is replaced. The new file has the permissions of the old.

    Args:
        path: Of the file to replace or to make.
        durable: Whether the file is to be on the disk at the end, and what was at `path` until
            then, whatever happens to the process or the machine.

    Raises:
        OSError: The file cannot be written; it names `path`.
    """
    target = path.resolve()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # Threads may save to one path, too. Not the name itself, which may be as long as names can be.
    sibling = target.with_name(f".pte-arenas.{os.getpid()}.{threading.get_native_id()}.tmp")
    try:
        if target.exists():  # who may read the old file may read the new one, and nobody else
            mode = stat.S_IMODE(target.stat().st_mode)
            sibling.touch(0o600 & mode)
            sibling.chmod(mode)
        yield sibling
        if durable:
            _sync(sibling)
        sibling.replace(target)
        if durable:
            _sync(target.parent)
    except OSError as error:
        if error.filename == str(sibling):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        sibling.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
