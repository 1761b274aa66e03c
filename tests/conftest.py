"""Selects tests by fault."""

from __future__ import annotations

import pytest

pytest_plugins = ["lower_faster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault", help="run the tests of one fault of docs/faults.md, or of 'all'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--fault")
    if wanted is not None:
        others = [item for item in items if wanted not in _faults_of(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if wanted in _faults_of(item)]


def _faults_of(item: pytest.Item) -> set[str]:
    """The faults that a test is about, and `all` if there are any."""
    faults = {fault for mark in item.iter_markers("fault") for fault in mark.args}
    return faults | {"all"} if faults else faults
