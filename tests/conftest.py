"""Selects tests by fault, and makes lowering faster where it repeats itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._export.utils as export_utils

_MATERIALIZE = export_utils._materialize_cpp_cia_ops


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


@pytest.fixture(autouse=True, scope="session")
def materialize_operators_once() -> Iterator[None]:
    """Spares a fifth of lowering: torch 2.13 looks 650 operators up several times for a method.

    It does so again whenever operators were registered since.
    """
    known = 0

    def materialize() -> None:
        nonlocal known
        names = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if len(names) != known:
            _MATERIALIZE()
            known = len(names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_utils, "_materialize_cpp_cia_ops", materialize)
        yield
