"""What goes into methods and comes out of them, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime_programs import stock
from torch import Tensor, nn

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]


class Twice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x, x]), x.clone()


class Add(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def same(found: list[Any], expected: tuple[Any, ...]) -> bool:
    """Whether tensors agree in dtype, shape and every element."""
    return all(
        have.dtype == wish.dtype and torch.equal(have, wish)
        for have, wish in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "unplanned"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: torch.dtype, planned: bool) -> None:
    x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    execute = stock(Twice(), x, plan_inputs=planned, plan_outputs=planned)
    for value in (x, x.flip(0)):
        assert same(execute((value,)), Twice()(value))


X = torch.arange(24.0).reshape(1, 2, 3, 4)
LAYOUTS = {
    "contiguous": X,
    "channels-last": X.to(memory_format=torch.channels_last),
    "transposed": X.reshape(1, 2, 4, 3).transpose(2, 3),
    "permuted": X.reshape(4, 3, 2, 1).permute(3, 2, 1, 0),
    "expanded": torch.arange(4.0).expand(1, 2, 3, 4),
    "strided": torch.arange(96.0).reshape(2, 2, 6, 4)[::2, :, ::2],
    "offset": torch.arange(25.0)[1:].reshape(1, 2, 3, 4),
    "negative": torch.complex(X, -X).conj().imag,
    "negative-of-one": torch._neg_view(X),
    "requires-grad": X.clone().requires_grad_(),
    "parameter": nn.Parameter(X.clone()),
    "inference": torch.empty(0),
}


@pytest.fixture(scope="module", params=[True, False], ids=["planned", "unplanned"])
def twice(request: pytest.FixtureRequest) -> Any:
    return stock(Twice(), X, plan_inputs=request.param, plan_outputs=request.param)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(twice: Any, layout: str) -> None:
    x = LAYOUTS[layout]
    if layout == "inference":
        with torch.inference_mode():
            x = X + 1
    assert x.shape == X.shape
    with torch.no_grad():
        expected = Twice()(x.contiguous())
    assert same(twice([x]), expected)


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "unplanned"])
@pytest.mark.parametrize("layout", ["contiguous", "channels-last", "expanded", "negative"])
def test_a_method_that_wants_channels_last(layout: str, planned: bool) -> None:
    example = X.to(memory_format=torch.channels_last)
    execute = stock(Add(), example, example, plan_inputs=planned, plan_outputs=planned)
    x = LAYOUTS[layout]
    (found,) = execute((x, example))
    assert torch.equal(found, x + example)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "sizes", [(), (1,), (0,), (2, 0, 3), (1, 1, 1)], ids=lambda sizes: f"{len(sizes)}d-{sizes}"
)
def test_small_and_empty_tensors(sizes: tuple[int, ...]) -> None:
    x = torch.full(sizes, 3.0)
    execute = stock(Add(), x, x)
    (found,) = execute((x, x))
    assert found.shape == sizes
    assert torch.equal(found, x + x)


def test_size_one_dimensions_may_have_any_stride() -> None:
    x = torch.arange(3.0).as_strided((1, 3), (7, 1))
    (found,) = stock(Add(), torch.ones(1, 3), torch.ones(1, 3))((x, x))
    assert torch.equal(found, x + x)


@pytest.mark.fault("F11")
def test_inputs_are_set_every_time() -> None:
    """F11: the planner reuses the memory of an input that is no longer needed."""
    x = torch.ones(8)
    execute = stock(Add(), x, x)
    for value in range(3):
        (found,) = execute((x * value, x))
        assert torch.equal(found, x * value + x)


def test_one_tensor_may_be_several_inputs() -> None:
    x = torch.arange(4.0)
    execute = stock(Add(), torch.ones(4), torch.ones(4))
    assert torch.equal(execute((x, x))[0], x + x)


def test_an_unplanned_input_may_be_the_output() -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            z = x * y
            return x, z, z

    x, y = torch.arange(4.0), torch.full((4,), 2.0)
    for planned in (True, False):
        execute = stock(Same(), y, x, plan_inputs=planned, plan_outputs=planned)
        found = execute((x, y))
        assert same(found, (x, x * y, x * y))
        found[0].fill_(9)
        found[1].fill_(9)
        assert torch.equal(x, torch.arange(4.0))
        assert torch.equal(found[2], x * y)


def test_a_constant_output_is_a_copy() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(3.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.table, x + self.table

    execute = stock(Constant(), torch.ones(3))
    found = execute((torch.ones(3),))
    found[0].zero_()
    assert same(execute((torch.ones(3),)), (torch.arange(3.0), torch.ones(3) + torch.arange(3.0)))


def test_scalars_come_out_as_python_values() -> None:
    class Scalars(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x + 1, 3, 0.5, True, None

    execute = stock(Scalars(), torch.ones(2))
    found = execute((torch.ones(2),))
    assert torch.equal(found[0], torch.full((2,), 2.0))
    assert found[1:] == [3, 0.5, True, None]
    assert [type(value) for value in found[1:4]] == [int, float, bool]


DYNAMIC = {"x": {0: torch.export.Dim("rows", min=2, max=8)}}


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "unplanned"])
def test_shapes_may_vary_up_to_their_bound(planned: bool) -> None:
    execute = stock(
        Twice(),
        torch.ones(4, 3),
        dynamic_shapes=DYNAMIC,
        plan_inputs=planned,
        plan_outputs=planned,
    )
    for rows in (2, 8, 3, 8, 2):
        x = torch.rand(rows, 3)
        assert same(execute((x,)), Twice()(x))
        assert same(execute((x.T.contiguous().T,)), Twice()(x))
    with pytest.raises(
        ValueError,
        match=r"^forward: input 0: expected float32 of sizes up to \(8, 3\) "
        r"but found float32 of sizes \(9, 3\)$",
    ):
        execute((torch.ones(9, 3),))


def test_many_inputs() -> None:
    class Sum(nn.Module):
        def forward(self, *values: Tensor) -> Tensor:
            return torch.stack(values).sum(0)

    values = [torch.full((2,), float(i)) for i in range(9)]
    assert torch.equal(stock(Sum(), *values)(values)[0], torch.full((2,), 36.0))
