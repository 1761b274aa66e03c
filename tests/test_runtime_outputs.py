"""Outputs that are not copied: views whose memory outlives method and session."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from executorch.exir import to_edge
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


LARGE = torch.ones(1 << 17)
"""512 KiB: what the runtime keeps for the next call when it is dropped."""


def _dropped_and_kept(plan_outputs: bool) -> tuple[Any, list[Tensor], set[int]]:
    """Five calls whose first outputs are dropped and whose second ones are kept."""
    data = stock_bytes(Pair(), {"forward": (LARGE,)}, plan_outputs=plan_outputs)
    method = load_program(data).load_method("forward")
    kept, places = [], set()
    for call in range(5):
        first, second = method.execute((LARGE * call,))
        torch.testing.assert_close(first, LARGE * call * 2)
        places.add(first.data_ptr())
        kept.append(second)
    return method, kept, places


@pytest.mark.parametrize("plan_outputs", [True, False])
def test_memory_of_dropped_outputs_is_used_again_and_no_other(plan_outputs: bool) -> None:
    _, kept, places = _dropped_and_kept(plan_outputs)
    assert len(places) <= 2, "while one is used, the next call takes another"
    assert len({value.data_ptr() for value in kept} | places) == len(kept) + len(places)
    for call, value in enumerate(kept):
        torch.testing.assert_close(value, LARGE * call + 1)


def test_outputs_outlive_the_session_that_would_reuse_their_memory() -> None:
    method, kept, _ = _dropped_and_kept(plan_outputs=False)
    del method
    gc.collect()
    while kept:
        value = kept.pop()
        torch.testing.assert_close(value, LARGE * len(kept) + 1)


class Chunk(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_memory_is_not_used_again_for_outputs_of_another_size() -> None:
    most = torch.export.Dim("most", min=2, max=LARGE.numel())
    module = Chunk()
    exported = torch.export.export(module, (LARGE,), dynamic_shapes=({0: most},))
    data = to_edge(exported).to_executorch().buffer
    method = load_program(data).load_method("forward")
    for numel in (LARGE.numel(), LARGE.numel() // 2, 3, LARGE.numel(), LARGE.numel() - 5):
        x = torch.randn(numel)
        (value,) = method.execute((x,))
        torch.testing.assert_close(value, module(x))
        del value


def test_outputs_may_be_dropped_by_any_thread() -> None:
    data = stock_bytes(Chunk(), {"forward": (LARGE,)}, plan_outputs=False)
    program = load_program(data)

    def calls(session: Any, start: int) -> None:
        held: list[Tensor] = []
        for call in range(start, start + 100):
            held.extend(session.execute("forward", (LARGE * call,)))
            if len(held) > 3:
                torch.testing.assert_close(held.pop(0), LARGE * (call - 3) + 1)

    session = program.session()
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(calls, session, 1000 * thread) for thread in range(4)]:
            done.result()
