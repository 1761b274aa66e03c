"""Sessions: whose state it is, and how long it lives."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime_programs import ONES, Counter, counter, counter_bytes, stock_bytes
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Session, load_program


def count(session: Session) -> float:
    """The state as a method sees it, which is the same in every element."""
    value, _ = session.execute("get")
    assert value.unique().numel() == 1
    return float(value[0, 0])


@pytest.fixture
def session() -> Session:
    return counter().session()


def test_state_starts_from_its_initial_value(session: Session) -> None:
    assert count(session) == 5


def test_methods_share_state(session: Session) -> None:
    eager = Counter()
    for _ in range(3):
        (value,) = session.execute("bump", (ONES,))
        assert torch.equal(value, eager.bump(ONES))
    assert all(map(torch.equal, session.execute("get"), eager.get()))


def test_loading_after_a_write_keeps_state(session: Session) -> None:
    session.execute("bump", (ONES,))
    session.load_method("get")
    assert count(session) == 6


def test_unloading_and_reloading_keeps_state(session: Session) -> None:
    for expected in (6, 7, 8):
        session.execute("bump", (ONES,))
        session.unload_method("bump")
        assert count(session) == expected
        session.unload_method("get")


def test_a_method_is_good_again_after_a_reload(session: Session) -> None:
    bump = session.load_method("bump")
    session.unload_method("bump")
    session.load_method("bump")
    bump.execute((ONES,))
    assert count(session) == 6


def test_loading_is_idempotent() -> None:
    """Private state would start again."""
    data = stock_bytes(Stateful(), {"stateful": (torch.ones(1),)})
    session = load_program(data).session()
    for expected in (1, 2):
        (value,) = session.load_method("stateful").execute((torch.ones(1),))
        assert float(value) == expected


def test_a_session_tells_what_is_loaded(session: Session) -> None:
    session.load_method("get")
    session.execute("bump", (ONES,))
    assert repr(session) == "Session(loaded=[bump, get], arenas=[state])"
    session.unload_method("bump")
    assert repr(session) == "Session(loaded=[get], arenas=[state])"


def test_another_method_does_not_disturb_state_or_outputs(session: Session) -> None:
    (first,) = session.execute("bump", (ONES,))
    (second,) = session.execute("double", (ONES * 9,))
    session.execute("bump", (ONES,))
    assert torch.equal(first, ONES * 6)
    assert torch.equal(second, ONES * 18)


def test_sessions_are_independent() -> None:
    program = counter()
    first, second = program.session(), program.session()
    first.execute("bump", (ONES,))
    assert (count(first), count(second)) == (6, 5)
    second.execute("bump", (ONES * 10,))
    assert (count(first), count(second)) == (6, 15)


def test_methods_of_the_program_share_its_default_session() -> None:
    program = counter()
    program.load_method("bump").execute((ONES,))
    value, _ = program.load_method("get").execute(())
    assert torch.equal(value, ONES * 6)
    assert count(program.session()) == 5


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param((), (5, 0), id="all"),
        pytest.param(("state",), (5, 0), id="arena"),
        pytest.param(("state", "count"), (5, 2), id="slot"),
        pytest.param(("state", "steps"), (7, 0), id="zero-slot"),
    ],
)
def test_reset_gives_initial_values_again(
    session: Session, names: tuple[str, ...], expected: tuple[float, int]
) -> None:
    session.execute("bump", (ONES,))
    session.execute("bump", (ONES,))
    session.reset(*names)
    value, steps = session.execute("get")
    assert (float(value[0, 0]), int(steps)) == expected


def test_slots_are_live_tensors_without_copies(session: Session) -> None:
    arena = session.arena("state")
    assert set(arena) == {"count", "steps"}
    assert len(arena) == 2
    assert "count" in arena
    assert arena.size == session.arena("state").layout.size
    value = arena["count"].tensor
    assert (value.dtype, value.shape) == (torch.float32, (2, 3))
    assert arena["steps"].tensor.shape == ()
    session.execute("bump", (ONES,))
    assert torch.equal(value, ONES * 6)
    value.mul_(2)
    assert count(session) == 12
    session.reset()
    assert torch.equal(value, ONES * 5)
    assert value.data_ptr() == arena["count"].tensor.data_ptr()
    assert value.data_ptr() % arena.layout.alignment == 0


def test_a_slot_outlives_its_session() -> None:
    session = counter().session()
    session.execute("bump", (ONES,))
    value = session.arena("state")["count"].tensor
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    assert torch.equal(value, ONES * 6)
    value.zero_()


def test_a_method_outlives_its_session_and_program() -> None:
    bump = counter().session().load_method("bump")
    gc.collect()
    assert torch.equal(bump.execute((ONES,))[0], ONES * 6)


def test_outputs_belong_to_the_caller(session: Session) -> None:
    (first,) = session.execute("bump", (ONES,))
    first.zero_()
    assert count(session) == 6


@pytest.mark.parametrize("name", [b"counter.pte", "é 😀.pte".encode(), b"\xff.pte"], ids=repr)
def test_a_program_comes_from_a_path_or_bytes(tmp_path: Path, name: bytes) -> None:
    data = counter_bytes()
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(data)
    for source in (path, str(path), data, bytearray(data), memoryview(data)):
        session = load_program(source).session()
        session.execute("bump", (ONES,))
        assert count(session) == 6


def test_arenas_are_those_of_the_layout() -> None:
    assert counter().arenas == pa.read_layout(counter_bytes()).arenas


def test_a_program_goes_with_its_last_user() -> None:
    """Without waiting for the garbage collector: arenas may be large."""
    gc.disable()
    try:
        program = counter()
        gone = weakref.ref(program)
        program.load_method("bump").execute((ONES,))
        assert program.arenas
        del program
        assert gone() is None
    finally:
        gc.enable()


def test_metadata() -> None:
    program = counter()
    assert program.method_names == {"bump", "get", "double"}
    for metadata in (program.metadata("bump"), program.load_method("bump").metadata):
        assert (metadata.name(), metadata.num_inputs(), metadata.num_outputs()) == ("bump", 1, 1)
        tensor = metadata.input_tensor_meta(0)
        assert (tensor.sizes(), tensor.dtype(), tensor.nbytes()) == ((2, 3), 6, 24)
        assert tensor.is_memory_planned()
        assert repr(tensor) == (
            "TensorInfo(sizes=(2, 3), dtype=float32, is_memory_planned=True, nbytes=24)"
        )
        assert repr(metadata) == "MethodMeta(name='bump', num_inputs=1, num_outputs=1)"
        with pytest.raises(
            IndexError, match=r"^bump: outputs: expected an index in \[0, 1\) but found 1$"
        ):
            metadata.output_tensor_meta(1)


class Stateful(nn.Module):
    """F1: one method with state, one without."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(1))

    def stateful(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return self.state * 1

    def stateless(self, x: Tensor) -> Tensor:
        return (x * 3 + 100) * 2 - x * x


def calls(call: Any) -> list[float]:
    names = ["stateful", "stateful", "stateless", "stateful"]
    inputs = [1.0, 1.0, 3.0, 1.0]
    return [call(name, torch.tensor([x])) for name, x in zip(names, inputs, strict=True)]


@pytest.mark.fault("F1", "F17")
def test_a_stock_file_gives_what_eager_gives() -> None:
    one = (torch.ones(1),)
    data = stock_bytes(Stateful(), {"stateful": one, "stateless": one})
    session = load_program(data).session()
    module = Stateful()
    expected = calls(lambda name, x: float(getattr(module, name)(x)))
    assert calls(lambda name, x: float(session.execute(name, (x,))[0])) == expected
    assert expected[-1] == 3


def test_private_state_ends_with_its_method() -> None:
    data = stock_bytes(Stateful(), {"stateful": (torch.ones(1),)})
    session = load_program(data).session()
    assert float(session.execute("stateful", (torch.ones(1),))[0]) == 1
    session.unload_method("stateful")
    assert float(session.execute("stateful", (torch.ones(1),))[0]) == 1
    assert load_program(data).arenas == ()
