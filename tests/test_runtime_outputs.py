"""Outputs that are not copied: views whose memory outlives method and session."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from runtime_programs import ONES, counter, stock_bytes
from torch import Tensor, nn

from pte_arenas.runtime import load_program


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x + 1


def _loaded(module: nn.Module, **options: Any) -> Any:
    data = stock_bytes(module, {"forward": (ONES,)}, **options)
    return load_program(data).load_method("forward")


def test_views_change_at_the_next_call_and_copies_do_not() -> None:
    method = _loaded(Pair())
    copied = method.execute((ONES,))
    viewed = method.execute((ONES,), copy_outputs=False)
    torch.testing.assert_close(viewed, list(Pair()(ONES)))
    again = method.execute((ONES * 3,), copy_outputs=False)
    assert [a.data_ptr() for a in viewed] == [b.data_ptr() for b in again]
    torch.testing.assert_close(viewed, list(Pair()(ONES * 3)))
    torch.testing.assert_close(copied, list(Pair()(ONES)))


def test_other_methods_leave_views_alone() -> None:
    session = counter().session()
    (doubled,) = session.execute("double", (ONES,), copy_outputs=False)
    session.execute("bump", (ONES,))
    session.execute("get")
    torch.testing.assert_close(doubled, ONES * 2)


def test_memory_outlives_method_and_session() -> None:
    session = counter().session()
    (doubled,) = session.execute("double", (ONES,), copy_outputs=False)
    session.unload_method("double")
    (other,) = session.execute("double", (ONES * 5,), copy_outputs=False)
    torch.testing.assert_close(doubled, ONES * 2)  # of the method that was unloaded
    assert doubled.data_ptr() != other.data_ptr()
    del session
    gc.collect()
    doubled.add_(1)
    torch.testing.assert_close(doubled, ONES * 3)
    torch.testing.assert_close(other, ONES * 10)


def test_outputs_that_the_program_has_no_memory_for_are_the_callers() -> None:
    method = _loaded(Pair(), plan_outputs=False)
    first = method.execute((ONES,), copy_outputs=False)
    method.execute((ONES * 3,), copy_outputs=False)
    torch.testing.assert_close(first, list(Pair()(ONES)))


class Echo(nn.Module):
    """Gives an input itself, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant", torch.full((2, 3), 7.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.constant


@pytest.mark.parametrize("plan_inputs", [False, True])
def test_constants_and_the_callers_tensors_are_copied(plan_inputs: bool) -> None:
    method = _loaded(Echo(), plan_inputs=plan_inputs)
    given = ONES.clone()
    echoed, constant = method.execute((given,), copy_outputs=False)
    given.fill_(9.0)
    constant.add_(1)  # the program's own constant lies in a file that is mapped to be read
    torch.testing.assert_close(echoed, ONES)
    torch.testing.assert_close(method.execute((ONES,)), list(Echo()(ONES)))
