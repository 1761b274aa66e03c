"""The rules that slots and bound tensors share, and how messages show names and byte ranges."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

from pte_arenas.dtypes import DTYPES
from pte_arenas.errors import InvalidProgramError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pte_arenas.layout import ArenaSlot, BoundTensor

UINT64_MAX = (1 << 64) - 1
LONGEST_RANK = 16  # kTensorDimensionLimit of the runtime
LONGEST_NAME = 60
LONGEST_LIST = 16


def escaped(name: str) -> str:
    """A name that is safe to print: ASCII without control characters, escaped as in JSON."""
    return json.dumps(name)[1:-1].replace("\x7f", "\\u007f")


def quoted(name: str) -> str:
    """A name as messages show it; a long one is cut."""
    more = "..." if len(name) > LONGEST_NAME else ""
    return f"'{escaped(name[:LONGEST_NAME])}{more}'"


def listed(elements: Sequence[object]) -> str:
    """A list as messages show it; a long one is cut."""
    more = ["..."] if len(elements) > LONGEST_LIST else []
    return f"[{', '.join([*map(str, elements[:LONGEST_LIST]), *more])}]"


def span(begin: int, nbytes: int) -> str:
    """A byte range as messages show it."""
    end = begin + nbytes
    return f"[{begin}, {end if end <= UINT64_MAX else '2^64 or more'})"


def is_number(value: object) -> bool:
    """Whether the file's number stands where the layout has a word: this version knows none."""
    return isinstance(value, int)


def check_type(where: str, tensor: ArenaSlot | BoundTensor) -> None:
    """The scalar type is known, the dimensions are few and no size is negative."""
    if tensor.dtype not in DTYPES:
        found = tensor.dtype if is_number(tensor.dtype) else quoted(tensor.dtype)
        raise InvalidProgramError(
            f"{where}.scalar_type", f"expected a known scalar type but found {found}"
        )
    if len(tensor.sizes) > LONGEST_RANK:
        raise InvalidProgramError(
            f"{where}.sizes",
            f"expected at most {LONGEST_RANK} dimensions but found {len(tensor.sizes)}",
        )
    for d, size in enumerate(tensor.sizes):
        if size < 0:
            raise InvalidProgramError(
                f"{where}.sizes[{d}]", f"expected at least 0 but found {size}"
            )


def check_dim_order(where: str, dim_order: Sequence[int], rank: int) -> None:
    """The dimension order has every dimension once."""
    if sorted(dim_order) != list(range(rank)):
        raise InvalidProgramError(
            f"{where}.dim_order",
            f"expected a permutation of 0 to {rank} (exclusive) but found {listed(dim_order)}",
        )


def check_nbytes(where: str, tensor: ArenaSlot | BoundTensor, *, overflow: str) -> None:
    """The bytes fit 64 bits, or `overflow` is the path, and are what sizes and dtype make."""
    nbytes = prod(tensor.sizes, start=DTYPES[tensor.dtype].width)
    if nbytes > UINT64_MAX:
        raise InvalidProgramError(
            overflow, f"expected a size that fits 64 bits but found sizes {listed(tensor.sizes)}"
        )
    if tensor.nbytes != nbytes:
        raise InvalidProgramError(
            f"{where}.nbytes",
            f"expected {nbytes} for sizes {listed(tensor.sizes)} of {tensor.dtype} "
            f"but found {tensor.nbytes}",
        )
