"""Element types: torch's names, their codes in the file and their widths, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class DType:
    """An element type that a program file can name.

    Attributes:
        name: As torch spells it without `torch.`, such as `float32`.
        code: Value of `ScalarType` in the schema (schema/scalar_type.fbs).
        width: Size of one element in bytes.
    """

    name: str
    code: int
    width: int


# schema/scalar_type.fbs of ExecuTorch 1.5.1. The complex types and bits1x8 to bits8 have codes in
# the runtime but none in the schema, so that no file can hold them.
_KNOWN = (
    DType("uint8", 0, 1),
    DType("int8", 1, 1),
    DType("int16", 2, 2),
    DType("int32", 3, 4),
    DType("int64", 4, 8),
    DType("float16", 5, 2),
    DType("float32", 6, 4),
    DType("float64", 7, 8),
    DType("bool", 11, 1),
    DType("qint8", 12, 1),
    DType("quint8", 13, 1),
    DType("qint32", 14, 4),
    DType("bfloat16", 15, 2),
    DType("quint4x2", 16, 1),
    DType("quint2x4", 17, 1),
    DType("bits16", 22, 2),
    DType("float8_e5m2", 23, 1),
    DType("float8_e4m3fn", 24, 1),
    DType("float8_e5m2fnuz", 25, 1),
    DType("float8_e4m3fnuz", 26, 1),
    DType("uint16", 27, 2),
    DType("uint32", 28, 4),
    DType("uint64", 29, 8),
)

DTYPES: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in _KNOWN})
"""Every known element type by its name."""

DTYPES_BY_CODE: Mapping[int, DType] = MappingProxyType({dtype.code: dtype for dtype in _KNOWN})
"""Every known element type by its `ScalarType` code."""


def name_of(dtype: object) -> str:
    """The name of one of torch's element types."""
    return str(dtype).removeprefix("torch.")
