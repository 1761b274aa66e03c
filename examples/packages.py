"""Data of installed packages that examples read without importing them."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def folder_of(module: str, distribution: str) -> Path:
    """Where a package is installed.

    Args:
        module: Its name in Python.
        distribution: Its name on PyPI.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    package = importlib.util.find_spec(module)
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            f"{distribution}: expected the package but found none; "
            f"install it with `pip install --no-deps {distribution}`",
            name=module,
        )
    return Path(package.submodule_search_locations[0])
