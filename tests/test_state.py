"""State of every kind, in random call sequences, against the module itself."""

from __future__ import annotations

import functools

import pytest
import torch
from against_eager import Model, check_calls, emit, repeated
from executorch.exir import to_edge_transform_and_lower
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stateful_models import Counter
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

ONES = torch.ones(2, 2)
METHODS = {"forward": (ONES,), "get": (), "reset": ()}


@functools.cache
def _counter_program() -> bytes:
    return emit(Model(Counter, METHODS, []), ()).buffer


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(
    st.lists(
        st.tuples(st.sampled_from(list(METHODS)), st.integers(-8, 8)), min_size=200, max_size=200
    ),
    st.sampled_from(["all_first", "lazy", "reload"]),
)
def test_counter_in_random_order(calls: list[tuple[str, int]], load_order: str) -> None:
    model = Model(
        Counter,
        METHODS,
        [(name, (ONES * amount,) if name == "forward" else ()) for name, amount in calls],
    )
    check_calls(model, load_program(_counter_program()).session(), load_order)


class OfDtype(nn.Module):
    """A buffer of a dtype that counts up from 0."""

    def __init__(self, dtype: torch.dtype, sizes: tuple[int, ...] = (2, 3)) -> None:
        super().__init__()
        count = torch.Size(sizes).numel()
        values = torch.arange(count).reshape(sizes).to(dtype)
        self.register_buffer("state", values, persistent=False)

    def put(self, x: Tensor) -> None:
        self.state.copy_(x)

    def get(self) -> Tensor:
        return self.state.clone()


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(), (2, 3)], ids=["scalar", "matrix"])
def test_dtypes_and_zero_dimensions(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    x = (torch.arange(torch.Size(sizes).numel()).reshape(sizes) * 3 + 1).to(dtype)
    model = Model(
        functools.partial(OfDtype, dtype, sizes),
        {"put": (x,), "get": ()},
        [("get", ()), ("put", (x,)), ("get", ())],
    )
    program = load_program(emit(model).buffer)
    check_calls(model, program.session())


class Packed(nn.Module):
    """Three bytes beside elements of eight."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("wide", torch.arange(4, dtype=torch.float64))
        self.register_buffer("byte", torch.tensor(3, dtype=torch.int8))
        self.register_buffer("count", torch.tensor(0))

    def step(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.flags.logical_not_()
        self.wide.add_(x)
        self.byte.sub_(1)
        self.count.add_(1)
        return self.wide * 1, self.count + self.byte

    def get(self) -> tuple[Tensor, ...]:
        return self.flags.clone(), self.wide.clone(), self.byte.clone(), self.count.clone()


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096])
def test_slots_are_aligned(alignment: int) -> None:
    x = torch.full((4,), 0.5, dtype=torch.float64)
    module = Packed()
    exported = pa.export(
        {"step": pa.EntryPoint(module.step, (x,)), "get": module.get},
        [pa.Arena("state", ["*"], alignment=alignment)],
    )
    emitted = pa.to_executorch(to_edge_transform_and_lower(exported.programs), exported.arenas)
    (arena,) = pa.read_layout(emitted.buffer).arenas
    widths = {"flags": 1, "wide": 8, "byte": 1, "count": 8}
    assert {slot.fqn for slot in arena.slots} == widths.keys()
    assert all(slot.offset % widths[slot.fqn] == 0 for slot in arena.slots)
    model = Model(Packed, {"step": (x,), "get": ()}, repeated(("step", (x,)), ("get", ())))
    session = load_program(emitted.buffer).session()
    check_calls(model, session)
    for fqn, width in widths.items():
        assert session.arena("state")[fqn].tensor.data_ptr() % width == 0
    assert session.arena("state")["flags"].tensor.data_ptr() % alignment == 0


def test_alignment_below_an_element_is_refused() -> None:
    exported = pa.export({"get": Packed().get}, [pa.Arena("state", ["*"], alignment=4)])
    edge = to_edge_transform_and_lower(exported.programs)
    with pytest.raises(pa.ArenaError) as error:
        pa.to_executorch(edge, exported.arenas)
    assert str(error.value) == (
        "arena 'state': expected an alignment of at least 8 for 'wide' but found 4"
    )


def test_capacity() -> None:
    def emit_with(capacity: int) -> pa.ArenaProgramManager:
        exported = pa.export({"get": Packed().get}, [pa.Arena("state", ["*"], capacity=capacity)])
        return pa.to_executorch(to_edge_transform_and_lower(exported.programs), exported.arenas)

    (arena,) = pa.read_layout(emit_with(72).buffer).arenas
    assert arena.size == 72
    with pytest.raises(pa.ArenaError) as error:
        emit_with(71)
    assert str(error.value) == (
        "arena 'state': expected at most its capacity of 71 bytes but found 72; the largest are "
        "'wide' with 32 bytes, 'count' with 8 bytes, 'flags' with 3 bytes: raise the capacity or "
        "leave buffers out"
    )


def test_initial_zeros_are_not_stored() -> None:
    def sized(initial: str) -> tuple[bytes, pa.ProgramLayout]:
        module = Counter()
        exported = pa.export({"get": module.get}, [pa.Arena("s", ["*"], initial=initial)])
        emitted = pa.to_executorch(to_edge_transform_and_lower(exported.programs), exported.arenas)
        return emitted.buffer, pa.read_layout(emitted.buffer)

    kept, kept_layout = sized("values")
    dropped, dropped_layout = sized("zeros")
    assert kept_layout.slot("state").data_buffer_idx == 1
    assert dropped_layout.slot("state").data_buffer_idx == 0
    assert dropped_layout.initial_data is None
    (value,) = load_program(dropped).session().execute("get", ())
    assert torch.equal(value, torch.zeros(2, 2))
    (value,) = load_program(kept).session().execute("get", ())
    assert torch.equal(value, torch.full((2, 2), 5.0))


class Private(nn.Module):
    """Mutable buffers that no arena holds, with initial values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shared", torch.tensor([1.0, 2.0]))
        self.register_buffer("own", torch.tensor([3.0, 4.0]))
        self.register_buffer("also", torch.tensor([3.0, 4.0]))

    def one(self, x: Tensor) -> Tensor:
        self.own.add_(x)
        self.shared.add_(self.own)
        return self.own * 1

    def two(self, x: Tensor) -> Tensor:
        self.also.mul_(x)
        return self.also + self.shared


@pytest.mark.parametrize("names", [False, True], ids=["unnamed", "named"])
def test_private_state_keeps_its_initial_values(names: bool) -> None:
    from executorch.exir import ExecutorchBackendConfig

    x = torch.tensor([2.0, 3.0])
    model = Model(
        Private,
        {"one": (x,), "two": (x,)},
        repeated(("one", (x,)), ("two", (x,))),
        buffers=["shared"],
    )
    config = ExecutorchBackendConfig(emit_mutable_buffer_names=names)
    emitted = emit(model, config=config)
    layout = pa.read_layout(emitted.buffer)
    assert [slot.fqn for slot in layout.arenas[0].slots] == ["shared"]
    assert layout.initial_data is not None
    assert len(layout.initial_data.offsets) == 3  # nothing, `shared`, and `own` like `also` once
    check_calls(model, load_program(emitted.buffer).session())
