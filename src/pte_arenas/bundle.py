"""Reads a `.bpte` file: a program with inputs and the outputs that are expected for them."""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.devtools.bundled_program.serialize.generated.bundled_program_flatbuffer import (
    Bool,
    Double,
    Int,
    Tensor,
)
from flatbuffers.table import Table
from flatbuffers.util import BufferHasIdentifier

from pte_arenas.dtypes import DTYPES_BY_CODE
from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import check_dim_order, listed

Value = torch.Tensor | int | float | bool


@dataclass(frozen=True)
class TestCase:
    """One call of a method.

    Attributes:
        inputs: One value for each input.
        expected: One value for each output.
    """

    __test__ = False  # for pytest

    inputs: tuple[Value, ...]
    expected: tuple[Value, ...]


@dataclass(frozen=True)
class TestSuite:
    """Calls of one method, in order."""

    __test__ = False

    method: str
    cases: tuple[TestCase, ...]


@dataclass(frozen=True)
class Bundle:
    """A program and its test suites, in the order of the file."""

    program: bytes
    suites: tuple[TestSuite, ...]


def read_bundle(source: str | os.PathLike[str] | bytes) -> Bundle:
    """Reads a bundled program, as `executorch.devtools.BundledProgram` makes it.

    Raises:
        InvalidProgramError: It is no bundled program, or a value in it is damaged.
        OSError: The file cannot be read.
    """
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        if not BufferHasIdentifier(data, 0, b"BP08"):
            raise _PROGRAM_ITSELF if BufferHasIdentifier(data, 0, b"ET12") else _DAMAGED
        (root,) = struct.unpack_from("<I", data)
        bundle = _Table(data, root)
        return Bundle(
            bundle.bytes(_PROGRAM),
            tuple(_suite(s, suite) for s, suite in enumerate(bundle.tables(_SUITES))),
        )
    # What reading raises where offsets lead nowhere.
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise error if isinstance(error, InvalidProgramError) else _DAMAGED from None


_PROGRAM_ITSELF = InvalidProgramError(
    "bundle", "expected a bundled program, a program with test suites, but found a program"
)

_DAMAGED = InvalidProgramError(
    "bundle", "expected a well-formed bundled program but found damaged or truncated data"
)

# Where vtables have the fields of bundled_program_schema.fbs (ExecuTorch 1.5.1). Its generated
# readers shadow each other's names, so that only those without tables in them work.
_SUITES, _PROGRAM = 6, 8
_METHOD, _CASES = 4, 6
_INPUTS, _EXPECTED = 4, 6
_TYPE, _VALUE = 4, 6
_KINDS = {1: Tensor.Tensor, 2: Int.Int, 3: Bool.Bool, 4: Double.Double}


class _Table(Table):  # type: ignore[misc]  # untyped
    """A table in the file, with its fields by their place in the vtable."""

    def tables(self, field: int) -> list[_Table]:
        """A vector of tables; empty if absent."""
        offset = self.Offset(field)
        if not offset:
            return []
        first = self.Vector(offset)
        places = range(first, first + 4 * self.VectorLen(offset), 4)
        return [_Table(self.Bytes, self.Indirect(place)) for place in places]

    def bytes(self, field: int) -> bytes:
        """A vector of bytes or a string; empty if absent."""
        offset = self.Offset(field)
        if not offset:
            return b""
        at = self.Vector(offset)
        return bytes(self.Bytes[at : at + self.VectorLen(offset)])


def _suite(index: int, suite: _Table) -> TestSuite:
    cases = (
        TestCase(
            _values(f"suites[{index}].cases[{c}].inputs", case.tables(_INPUTS)),
            _values(f"suites[{index}].cases[{c}].expected", case.tables(_EXPECTED)),
        )
        for c, case in enumerate(suite.tables(_CASES))
    )
    return TestSuite(suite.bytes(_METHOD).decode(), tuple(cases))


def _values(where: str, values: list[_Table]) -> tuple[Value, ...]:
    return tuple(_value(f"{where}[{i}]", value) for i, value in enumerate(values))


def _value(where: str, table: _Table) -> Value:
    kind = table.Offset(_TYPE) and table.Bytes[table.Pos + table.Offset(_TYPE)]
    if kind not in _KINDS or not table.Offset(_VALUE):
        raise InvalidProgramError(where, "expected a value but found none")
    value = _KINDS[kind]()
    value.Init(table.Bytes, table.Indirect(table.Pos + table.Offset(_VALUE)))
    match value:
        case Int.Int():
            return int(value.IntVal())
        case Double.Double():
            return float(value.DoubleVal())
        case Bool.Bool():
            return bool(value.BoolVal())
        case _:
            return _tensor(where, value)


def _tensor(where: str, value: Any) -> torch.Tensor:
    dtype = DTYPES_BY_CODE.get(value.ScalarType())
    torch_dtype = getattr(torch, dtype.name, None) if dtype else None
    if dtype is None or torch_dtype is None:
        raise InvalidProgramError(
            f"{where}.scalar_type", f"expected a known scalar type but found {value.ScalarType()}"
        )
    sizes = [int(value.Sizes(d)) for d in range(value.SizesLength())]
    data = b"" if value.DataIsNone() else value.DataAsNumpy().tobytes()
    nbytes = math.prod(sizes) * dtype.width
    if len(data) != nbytes:
        raise InvalidProgramError(
            f"{where}.data",
            f"expected {nbytes} bytes for sizes {listed(sizes)} of {dtype.name} but found "
            f"{len(data)}",
        )
    order = [int(value.DimOrder(d)) for d in range(value.DimOrderLength())]
    check_dim_order(where, order, len(sizes))
    flat = (
        torch.frombuffer(bytearray(data), dtype=torch_dtype)
        if data
        else torch.empty(0, dtype=torch_dtype)
    )
    return flat.reshape([sizes[dim] for dim in order]).permute(
        [order.index(dim) for dim in range(len(sizes))]
    )
