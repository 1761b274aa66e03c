"""Cases whose names begin with the number of a fault of docs/faults.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest


def by_fault(cases: Mapping[str, Any]) -> list[Any]:
    """Parameters by name, with the mark of the fault that the name begins with."""
    return [
        pytest.param(
            case, id=name, marks=[pytest.mark.fault(f) for f in re.findall(r"^F\d+\b", name)]
        )
        for name, case in cases.items()
    ]
