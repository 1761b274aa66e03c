"""Names that a caller gives: known, or an error that offers what there is."""

from __future__ import annotations

from collections.abc import Collection

from pte_arenas.errors import ArenaError
from pte_arenas.names import nearest
from pte_arenas.rules.tensors import quoted


def check_name(kind: str, name: object, known: Collection[str]) -> None:
    """Checks that a name is among the known ones.

    Raises:
        ArenaError: It is not; with the nearest names, or with what there is.
        TypeError: It is no string.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected the name of {kind} but found {_in_words(name)}")
    if name not in known:
        raise ArenaError(
            f"expected the name of {kind} but found {quoted(name)}; {nearest(name, known)}"
        )


def check_type(option: str, value: object, kind: type) -> None:
    """Checks an option that takes objects of one type.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{option}: expected a {kind.__name__} but found {_in_words(value)}")


def _in_words(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return f"the {type(value).__name__} {value}"
    return type(value).__name__
