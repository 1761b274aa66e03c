"""Selects tests by fault, and begins with slow ones."""

from __future__ import annotations

import pytest

pytest_plugins = ["lower_faster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chromium", help="run the tests in a browser, with this one")
    parser.addoption("--screenshots", help="a folder for what the browser shows")
    parser.addoption("--fault", help="run the tests of one fault of docs/faults.md, or of 'all'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--chromium") is None:
        _keep(config, items, [item for item in items if not item.get_closest_marker("browser")])
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    wanted = config.getoption("--fault")
    if wanted is not None:
        _keep(config, items, [item for item in items if wanted in _faults_of(item)])


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    others = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in others])
    items[:] = kept


def _faults_of(item: pytest.Item) -> set[str]:
    """The faults that a test is about, and `all` if there are any."""
    faults = {fault for mark in item.iter_markers("fault") for fault in mark.args}
    return faults | {"all"} if faults else faults
