"""Numbers and sizes in bytes as people read and write them."""

from __future__ import annotations

import re

from pte_arenas.errors import ArenaError
from pte_arenas.rules.tensors import quoted

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:iB)?", re.ASCII)


def parse_size(text: str) -> int:
    """Reads a size such as `4096`, `512K`, `1.5M` or `2GiB`; K is 1,024 bytes, M 1,024 K.

    Raises:
        ArenaError: It is none, or no whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match:
        number, unit = match.groups()
        whole, _, part = number.partition(".")
        scale: int = 10 ** len(part)
        nbytes, rest = divmod(int(whole + part) * _UNITS[unit], scale)
        if not rest:
            return nbytes
    is_decimal = re.fullmatch(r".*\d\s*[kKMGT]B", text.strip(), re.ASCII)
    hint = "; K, M, G and T are powers of 1,024 and stand alone" if is_decimal else ""
    raise ArenaError(
        f"expected a whole number of bytes such as 4096, 512K or 2M but found {quoted(text)}{hint}"
    )


def parse_assignment(text: str) -> tuple[str, str]:
    """Splits `NAME=VALUE` at its last equals sign.

    Raises:
        ArenaError: A side is missing.
    """
    name, _, value = text.rpartition("=")
    if not name.strip() or not value.strip():
        raise ArenaError(f"expected NAME=VALUE but found {quoted(text)}")
    return name.strip(), value.strip()


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 slot` or `2,000 slots`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def in_bytes(number: int) -> str:
    """A size in bytes."""
    return counted(number, "byte")
