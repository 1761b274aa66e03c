"""Names that a caller gives: found, or an error that offers what there is."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

from pte_arenas.errors import ArenaError

_MOST_LISTED = 20


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Checks that a name is among the known ones.

    Raises:
        ArenaError: With the nearest names and with what there is.
    """
    names = sorted(known)
    if name in names:
        return
    message = f"expected the name of {kind} but found {_quoted(name)}"
    if nearest := difflib.get_close_matches(name, names):
        message += f"; nearest: {_listed(nearest)}"
    raise ArenaError(f"{message}; there is {_listed(names) or 'none'}")


def _listed(names: list[str]) -> str:
    listed = ", ".join(map(_quoted, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _quoted(name: str) -> str:
    return f"'{json.dumps(name)[1:-1]}'"
