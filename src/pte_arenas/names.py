"""What to offer when a name is not among the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pte_arenas.errors import ArenaError
from pte_arenas.rules.tensors import quoted

_T = TypeVar("_T")

_MOST_LISTED = 8


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint that offers the known names closest to `name`."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(map(quoted, close)) + "?"
    if not known:
        return "there are none"
    shown = ", ".join(map(quoted, known[:_MOST_LISTED]))
    more = len(known) - _MOST_LISTED
    return f"there are {shown}" + (f" and {more} more" if more > 0 else "")


def named(kind: str, name: str, known: Mapping[str, _T]) -> _T:
    """Returns what has this name; raises `ArenaError` with a hint when nothing has."""
    if name not in known:
        raise ArenaError(
            f"expected a known {kind} but found {quoted(name)}; {nearest(name, known)}"
        )
    return known[name]
