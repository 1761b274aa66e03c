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
    BundledProgram,
    Double,
    Int,
    Tensor,
)

from pte_arenas.dtypes import DTYPES_BY_CODE
from pte_arenas.errors import InvalidProgramError
from pte_arenas.rules.tensors import listed

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
    damaged = InvalidProgramError(
        "bundle", "expected a well-formed bundled program but found damaged or truncated data"
    )
    try:
        if not BundledProgram.BundledProgram.BundledProgramBufferHasIdentifier(data, 0):
            raise damaged
        bundle = BundledProgram.BundledProgramT.InitFromPackedBuf(data)
        return Bundle(
            bytes(bundle.program if bundle.program is not None else b""),
            tuple(
                TestSuite(
                    _text(suite.methodName),
                    tuple(
                        TestCase(
                            _values(f"suites[{s}].cases[{c}].inputs", case.inputs),
                            _values(f"suites[{s}].cases[{c}].expected", case.expectedOutputs),
                        )
                        for c, case in enumerate(suite.testCases or ())
                    ),
                )
                for s, suite in enumerate(bundle.methodTestSuites or ())
            ),
        )
    # What the generated readers raise where offsets lead nowhere.
    except (struct.error, IndexError, TypeError, AttributeError, UnicodeDecodeError):
        raise damaged from None


def _text(name: bytes | str | None) -> str:
    return name.decode() if isinstance(name, bytes) else name or ""


def _values(where: str, values: list[Any] | None) -> tuple[Value, ...]:
    return tuple(_value(f"{where}[{i}]", each.val) for i, each in enumerate(values or ()))


def _value(where: str, value: Any) -> Value:
    match value:
        case Int.IntT(intVal=number):
            return int(number)
        case Double.DoubleT(doubleVal=number):
            return float(number)
        case Bool.BoolT(boolVal=truth):
            return bool(truth)
        case Tensor.TensorT():
            return _tensor(where, value)
        case _:
            raise InvalidProgramError(where, "expected a value but found none")


def _tensor(where: str, value: Any) -> torch.Tensor:
    dtype = DTYPES_BY_CODE.get(value.scalarType)
    torch_dtype = getattr(torch, dtype.name, None) if dtype else None
    if dtype is None or torch_dtype is None:
        raise InvalidProgramError(
            f"{where}.scalar_type", f"expected a known scalar type but found {value.scalarType}"
        )
    sizes = [int(size) for size in value.sizes] if value.sizes is not None else []
    data = bytes(value.data) if value.data is not None else b""
    nbytes = math.prod(sizes) * dtype.width
    if len(data) != nbytes:
        raise InvalidProgramError(
            f"{where}.data",
            f"expected {nbytes} bytes for sizes {listed(sizes)} of {dtype.name} but found "
            f"{len(data)}; bundle clones, since a view is bundled with all of its storage",
        )
    order = [int(dim) for dim in value.dimOrder] if value.dimOrder is not None else []
    if sorted(order) != list(range(len(sizes))):
        raise InvalidProgramError(
            f"{where}.dim_order",
            f"expected a permutation of 0 to {len(sizes)} (exclusive) but found {listed(order)}",
        )
    flat = (
        torch.frombuffer(bytearray(data), dtype=torch_dtype)
        if data
        else torch.empty(0, dtype=torch_dtype)
    )
    return flat.reshape([sizes[dim] for dim in order]).permute(
        [order.index(dim) for dim in range(len(sizes))]
    )
