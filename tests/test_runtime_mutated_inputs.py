"""F31: a method that changes its inputs changes the caller's tensors, as eager PyTorch does."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.exir import to_edge
from runtime_programs import stock
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Session, load_program


class Mutating(nn.Module):
    """State as well, so that the program has an arena."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2, 3))

    def one(self, x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        self.count.add_(x)
        return self.count * y

    def many(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x.mul_(2)
        y[0].add_(x[1])
        z.copy_(self.count)
        return x + y + z


def ones() -> Tensor:
    return torch.ones(2, 3)


@functools.cache
def mutating_bytes() -> bytes:
    module = Mutating()
    exported = pa.export(
        {
            "one": pa.EntryPoint(module.one, (ones(), ones())),
            "many": pa.EntryPoint(module.many, (ones(), ones(), ones())),
        },
        arenas=[pa.Arena("state", buffers=["count"])],
    )
    data: bytes = pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer
    return data


@pytest.fixture
def session() -> Session:
    return load_program(mutating_bytes()).session()


X = torch.arange(6.0).reshape(2, 3)
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": X.clone,
    "transposed": lambda: X.T.contiguous().T,
    "strided": lambda: torch.arange(24.0).reshape(4, 6)[::2, ::2],
    "offset": lambda: torch.arange(7.0)[1:].reshape(2, 3),
    "row": lambda: torch.arange(60.0).reshape(2, 3, 10)[:, :, 4],
    "negative": lambda: torch.complex(X, -X).conj().imag,
    "intermediate": lambda: X.clone().requires_grad_() * 1,
}


def whole(tensor: Tensor) -> Tensor:
    """Everything in a tensor's memory, also what the tensor does not show."""
    storage = tensor.untyped_storage()
    return torch.frombuffer(bytearray(storage.tolist()), dtype=torch.uint8)


@pytest.mark.fault("F31")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_caller_sees_the_change(session: Session, layout: str) -> None:
    eager = Mutating()
    wish, have = LAYOUTS[layout](), LAYOUTS[layout]()
    for step in range(2):
        with torch.no_grad():
            expected = eager.one(X, wish)
        version = have._version
        assert torch.equal(session.execute("one", (X, have))[0], expected)
        assert torch.equal(have, wish), step
        assert have._version > version
    assert torch.equal(whole(have.detach()), whole(wish.detach()))
    assert torch.equal(X, torch.arange(6.0).reshape(2, 3))


@pytest.mark.fault("F31")
def test_several_inputs_change(session: Session) -> None:
    eager = Mutating()
    wish, have = ([layout() for layout in LAYOUTS.values()][:3] for _ in range(2))
    for _ in range(2):
        session.execute("one", (X, ones()))
        eager.one(X, ones())
        (found,) = session.load_method("many").execute(have)
        assert torch.equal(found, eager.many(*wish))
        assert all(map(torch.equal, have, wish))


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "unplanned"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_stock_files_change_inputs_too(layout: str, planned: bool) -> None:
    class AddOne(nn.Module):
        def forward(self, y: Tensor) -> Tensor:
            y.add_(1)
            return y * 2

    execute = stock(AddOne(), X, plan_inputs=planned)
    wish, have = LAYOUTS[layout](), LAYOUTS[layout]()
    with torch.no_grad():
        expected = AddOne()(wish)
    # Stock ExecuTorch gives the new value as an output as well.
    assert torch.equal(execute((have,))[-1], expected)
    assert torch.equal(have, wish)


def inference() -> Tensor:
    with torch.inference_mode():
        return ones()


MUST_BE_WRITTEN = (
    "one: input 1: expected a tensor that can be changed in place, as the method does, but found "
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: torch.ones(3).expand(2, 3), "expanded memory: pass its clone()", id="expanded"
        ),
        pytest.param(
            lambda: nn.Parameter(ones()),
            "a leaf that requires grad: call it in torch.no_grad()",
            id="leaf",
        ),
        pytest.param(
            inference, "an inference tensor: call it in torch.inference_mode()", id="inference"
        ),
    ],
)
def test_refuses_what_it_cannot_change(
    session: Session, make: Callable[[], Tensor], message: str
) -> None:
    given = make()
    with pytest.raises(ValueError, match=f"^{re.escape(MUST_BE_WRITTEN + message)}$"):
        session.execute("one", (ones(), given))
    assert torch.equal(given.detach(), ones())
    assert not session.arena("state")["count"].tensor.any(), "it did not run"
    session.execute("one", (given, ones()))  # not changed, so any tensor will do


@pytest.mark.parametrize(
    ("mode", "make"),
    [(torch.no_grad, lambda: nn.Parameter(ones())), (torch.inference_mode, inference)],
    ids=["leaf", "inference"],
)
def test_changes_what_eager_could_change_there(
    session: Session, mode: Any, make: Callable[[], Tensor]
) -> None:
    given = make()
    with mode():
        session.execute("one", (ones(), given))
    assert torch.equal(given.detach(), ones() * 2)
