"""Selects tests by fault, and makes lowering faster where it repeats itself."""

from __future__ import annotations

import gc
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._export.utils import _collect_all_valid_cia_ops as _COLLECT
from torch.export import decomp_utils, exported_program


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chromium", help="run the tests in a browser, with this one")
    parser.addoption("--screenshots", help="a folder for what the browser shows")
    parser.addoption("--fault", help="run the tests of one fault of docs/faults.md, or of 'all'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--chromium") is None:
        _keep(config, items, [item for item in items if not item.get_closest_marker("browser")])
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


@pytest.fixture(autouse=True, scope="session")
def lower_faster() -> Iterator[None]:
    """Spares a third of the time of lowering, in three places of torch 2.13.

    It looks 650 operators up for each of 40 namespaces several times for a method; evaluates a type
    annotation each time that it replaces a kernel, ten thousand times for a method; and makes
    so many objects that the garbage collector goes through all of torch's again and again.
    """
    operators: dict[int, Any] = {}

    def collect() -> Any:
        names = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        known = len(names)  # others appear as they are registered
        if known not in operators:
            operators[known] = _COLLECT()
        return operators[known]

    thresholds = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exported_program, "_collect_all_valid_cia_ops", collect)
        patch.setattr(decomp_utils, "_collect_all_valid_cia_ops", collect)
        patch.setattr(torch._ops, "Callable", typing.Callable)  # remembers its subscripts
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
