"""Damage that a corpus of rules does not think of: every cut, and tables taken for other tables.

`test_check.py` holds the files that break one rule each; here Python and C++ must agree on any
damage to the structure, and what is cut is always refused.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from corpus import UINT64_MAX, file_with
from test_check import verdict

import pte_arenas as pa
from pte_arenas.runtime import _C
from pte_arenas.wire.Program import Program

DAMAGED = "program: expected a well-formed ExecuTorch program but found damaged or truncated data"
SOUND = file_with({})
PROGRAM_SIZE, SEGMENT_BASE = struct.unpack_from("<QQ", SOUND, 16)
PROGRAM = Program.GetRootAs(SOUND)
OURS = {"ProgramArenas", "ProgramArena", "ArenaSlot", "ArenaBinding"}


def agreed(data: bytes) -> str:
    """The verdict of both readers, which must be one."""
    ours = verdict(pa.check, data)
    assert verdict(_C.check, data) == ours
    return ours


def patched(position: int, replacement: bytes) -> bytes:
    return SOUND[:position] + replacement + SOUND[position + len(replacement) :]


def test_every_cut_of_the_file_is_refused() -> None:
    assert {agreed(SOUND[:size]) for size in range(len(SOUND))} == {DAMAGED}


def test_every_cut_of_the_program_is_refused() -> None:
    """The header agrees with the cut, so that the verifier has to see it."""
    for size in range(0, last_table_end(), 2):
        assert agreed(patched(16, struct.pack("<Q", size))) == DAMAGED, size


@pytest.mark.parametrize("field", [16, 24, 32], ids=["program", "base", "segments"])
@pytest.mark.parametrize("size", [2**31, 2**32, 2**63, UINT64_MAX - len(SOUND), UINT64_MAX])
def test_sizes_of_the_header_that_wrap_are_refused(field: int, size: int) -> None:
    assert agreed(patched(field, struct.pack("<Q", size))) == DAMAGED


def field_at(table: Any, number: int) -> int:
    """Where the offset of a field of a table stands."""
    position: int = table._tab.Pos + table._tab.Offset(4 + 2 * number)
    return position


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(field_at(PROGRAM.MutableDataSegments(0), 1), id="mutable_data_segments"),
        pytest.param(field_at(PROGRAM.ExecutionPlan(0), 8), id="non_const_buffer_sizes"),
    ],
)
def test_numbers_of_64_bits_where_they_cannot_be_read_are_refused(position: int) -> None:
    """FlatBuffers' verifier lets such vectors pass; found by fuzzing."""
    (offset,) = struct.unpack_from("<I", SOUND, position)
    length = position + offset
    assert length % 8 == 4
    assert struct.unpack_from("<I", SOUND, length + 4) == (0,)  # a length that fits
    assert agreed(patched(position, struct.pack("<I", offset + 4))) == DAMAGED


def tables(owner: Any) -> Iterator[tuple[int, str]]:
    """Position and type of a table and of every table that it refers to."""
    yield owner._tab.Pos, type(owner).__name__
    for name, method in inspect.getmembers(type(owner), inspect.isfunction):
        if hasattr(owner, f"{name}Length"):
            children = [getattr(owner, name)(i) for i in range(getattr(owner, f"{name}Length")())]
        elif list(inspect.signature(method).parameters) == ["self"]:
            children = [method(owner)]
        else:
            continue
        for child in children:
            if type(child).__module__.startswith("pte_arenas.wire"):
                yield from tables(child)


TABLES = dict(tables(PROGRAM))


def last_table_end() -> int:
    """Up to here, a cut takes something away that the program refers to."""
    return max(TABLES)


def references() -> Iterator[tuple[int, int]]:
    """Where an offset to a table stands, and to which."""
    for position in range(0, PROGRAM_SIZE, 4):
        target = position + struct.unpack_from("<I", SOUND, position)[0]
        if target in TABLES:
            yield position, target


def test_a_table_taken_for_another_is_noticed() -> None:
    found: dict[str, int] = {}
    for position, right in references():
        for wrong, type_name in TABLES.items():
            if wrong > position and type_name != TABLES[right]:
                what = agreed(patched(position, struct.pack("<I", wrong - position)))
                assert what != "sound" or TABLES[right] not in OURS, (position, wrong)
                found[what] = found.get(what, 0) + 1
    assert found[DAMAGED] > 10
    assert len(found) > 10, "some are well-formed and break a rule"
