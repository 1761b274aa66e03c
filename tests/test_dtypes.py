"""The table of element types against torch's and the schema's."""

from __future__ import annotations

import pytest
import torch

from pte_arenas.dtypes import DTYPES, DTYPES_BY_CODE, DType
from pte_arenas.wire.ScalarType import ScalarType

CODES = {name: code for name, code in vars(ScalarType).items() if name.isupper()}


def test_every_scalar_type_of_the_schema_is_known() -> None:
    assert sorted(DTYPES_BY_CODE) == sorted(CODES.values())


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
def test_names_and_widths_are_those_of_torch(dtype: DType) -> None:
    assert getattr(torch, dtype.name).itemsize == dtype.width


def test_codes_are_those_of_exir() -> None:
    from executorch.exir.tensor import scalar_type_enum

    for name in ("uint8", "int64", "float16", "float64", "bool", "bfloat16", "qint8", "uint16"):
        assert int(scalar_type_enum(getattr(torch, name))) == DTYPES[name].code
