"""Where the memory of a session comes from, and copies of slots."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import to_edge
from runtime_programs import ONES, counter
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Program, Session, load_program

SIZE = counter().arenas[0].size


def aligned(nbytes: int, offset: int = 0) -> Tensor:
    """Bytes at an address that is `offset` more than a multiple of 64."""
    block = torch.full((nbytes + 192,), 0xEE, dtype=torch.uint8)
    start = -block.data_ptr() % 64 + offset
    return block[start : start + nbytes]


def mapped(nbytes: int) -> mmap.mmap:
    return mmap.mmap(-1, nbytes)


def count(session: Session) -> float:
    value, _ = session.execute("get")
    assert torch.equal(value, torch.full((2, 3), value[0, 0].item()))
    return float(value[0, 0])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(aligned, id="tensor"),
        pytest.param(lambda size: aligned(size).numpy(), id="numpy"),
        pytest.param(lambda size: aligned(4 * size).view(torch.float32), id="larger-float"),
        pytest.param(mapped, id="mmap"),
        pytest.param(lambda size: memoryview(mapped(size)), id="memoryview"),
    ],
)
def test_state_lives_in_borrowed_memory(make: Callable[[int], Any]) -> None:
    memory = make(SIZE)
    program = counter()
    session = program.session(arenas={"state": memory})
    session.execute("bump", (ONES,))
    assert count(session) == 6
    raw = bytes(memory.numpy() if isinstance(memory, Tensor) else memory)
    offset = session.arena("state")["count"].layout.offset
    assert np.frombuffer(raw, np.float32, 6, offset).tolist() == [6.0] * 6
    del session
    kept = program.session(arenas={"state": memory}, keep=True)
    assert count(kept) == 6
    kept.reset()
    assert count(kept) == 5
    assert count(program.session(arenas={"state": memory})) == 5


def test_borrowed_memory_lives_as_long_as_its_last_user() -> None:
    memory = mapped(SIZE)
    session = counter().session(arenas={"state": memory})
    view = session.arena("state")["count"].tensor
    del session
    with pytest.raises(BufferError, match=r"^cannot close exported pointers exist$"):
        memory.close()
    assert torch.equal(view, ONES * 5)
    del view
    memory.close()


def test_state_survives_in_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as memory:
        counter().session(arenas={"state": memory}).execute("bump", (ONES,))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as memory:
        assert count(counter().session(arenas={"state": memory}, keep=True)) == 6


@pytest.mark.parametrize(
    ("arenas", "error", "message"),
    [
        pytest.param(
            {"stat": aligned(SIZE)},
            pa.ArenaError,
            "expected the name of an arena but found 'stat'; did you mean 'state'?",
            id="name",
        ),
        pytest.param(
            {"state": aligned(SIZE - 1)},
            pa.ArenaError,
            f"expected at least {SIZE} bytes for arena 'state' but found {SIZE - 1}",
            id="size",
        ),
        pytest.param(
            {"state": aligned(SIZE, offset=16)},
            pa.ArenaError,
            "expected an address aligned to 64 bytes for arena 'state' but found one aligned to 16",
            id="alignment",
        ),
        pytest.param(
            {"state": bytes(SIZE)},
            TypeError,
            "arena 'state': expected a tensor or a writable contiguous buffer but found bytes",
            id="read-only",
        ),
        pytest.param(
            {"state": aligned(2 * SIZE).numpy()[::2]},
            TypeError,
            "arena 'state': expected a tensor or a writable contiguous buffer but found "
            "numpy.ndarray",
            id="strided-buffer",
        ),
        pytest.param(
            {"state": aligned(2 * SIZE)[::2]},
            ValueError,
            "arena 'state': expected a contiguous tensor on cpu but found "
            f"uint8 of sizes ({SIZE},) with gaps or in another order",
            id="strided-tensor",
        ),
        pytest.param(
            {"state": torch.empty(SIZE, dtype=torch.uint8, device="meta")},
            ValueError,
            "arena 'state': expected a contiguous tensor on cpu but found "
            f"uint8 of sizes ({SIZE},) on meta",
            id="meta",
        ),
        pytest.param(
            {"state": 3},
            TypeError,
            "arena 'state': expected a tensor or a writable contiguous buffer but found the int 3",
            id="int",
        ),
    ],
)
def test_what_cannot_be_borrowed(
    arenas: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        counter().session(arenas=arenas)
    assert str(caught.value) == message
    assert type(caught.value) is error


def test_nothing_to_keep() -> None:
    with pytest.raises(pa.ArenaError) as caught:
        counter().session(keep=True)
    assert str(caught.value) == (
        "expected arenas to keep but found none: pass them as arenas={...}"
    )


class Layers(nn.Module):
    """Activations of some size, for a scratch arena; state in another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(64))

    def add(self, x: Tensor) -> Tensor:
        y = (x * 2).sin()
        self.total.add_(y * x)
        return self.total * 1


X = torch.linspace(-1.0, 1.0, 64)


@functools.cache
def with_scratch() -> Program:
    module = Layers()
    exported = pa.export(
        {"add": pa.EntryPoint(module.add, (X,))},
        arenas=[pa.Arena("state", buffers=["total"]), pa.Arena("work", lifetime="scratch")],
    )
    return load_program(pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer)


def test_sessions_that_share_scratch_memory_give_eagers_results() -> None:
    program = with_scratch()
    first = program.session()
    sessions = [first, program.session(scratch_from=first)]
    sessions.append(program.session(scratch_from=sessions[1]))
    eager = [Layers() for _ in sessions]

    def run(session: Session, module: Layers, scale: float) -> None:
        for step in range(200):
            (given,) = session.execute("add", (X * scale,))
            expected = module.add(X * scale)
            torch.testing.assert_close(given, expected, msg=f"step {step}")

    with ThreadPoolExecutor(len(sessions)) as pool:
        list(pool.map(run, sessions, eager, (1.0, 2.0, 3.0)))


def test_scratch_memory_outlives_the_session_that_it_is_from() -> None:
    program = with_scratch()
    size = next(arena.size for arena in program.arenas if arena.name == "work")
    first = program.session(arenas={"work": aligned(size)})
    second = program.session(scratch_from=first)
    del first
    torch.testing.assert_close(second.execute("add", (X,))[0], Layers().add(X))


def test_scratch_memory_is_of_the_same_program() -> None:
    with pytest.raises(pa.ArenaError) as caught:
        counter().session(scratch_from=with_scratch().session())
    assert str(caught.value) == ("expected a session of the same program but found one of another")


def test_a_clone_is_the_callers_own() -> None:
    session = counter().session()
    slot = session.arena("state")["count"]
    clone = slot.clone()
    assert torch.equal(clone, slot.tensor)
    assert clone.dtype == torch.float32
    session.execute("bump", (ONES,))
    assert torch.equal(clone, ONES * 5)
    clone.zero_()
    assert torch.equal(slot.tensor, ONES * 6)
    steps = session.arena("state")["steps"].clone()
    assert (steps.shape, steps.item()) == (torch.Size([]), 1)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(torch.arange(6.0).view(2, 3), id="plain"),
        pytest.param(torch.arange(6.0).view(3, 2).T, id="transposed"),
        pytest.param(torch.ones(1).expand(2, 3), id="expanded"),
        pytest.param(torch.arange(6.0).view(2, 3).requires_grad_(), id="requires-grad"),
        pytest.param(torch._neg_view(torch.arange(6.0).view(2, 3)), id="negative"),
    ],
)
def test_copies_a_tensor_into_a_slot(tensor: Tensor) -> None:
    session = counter().session()
    session.arena("state")["count"].copy_from(tensor)
    value, steps = session.execute("get")
    assert torch.equal(value, tensor)
    assert steps == 0


@pytest.mark.parametrize(
    ("value", "error", "found"),
    [
        pytest.param(ONES.double(), ValueError, "float64 of sizes (2, 3)", id="dtype"),
        pytest.param(ONES.T, ValueError, "float32 of sizes (3, 2)", id="sizes"),
        pytest.param(ONES[0], ValueError, "float32 of sizes (3,)", id="rank"),
        pytest.param(ONES.to("meta"), ValueError, "float32 of sizes (2, 3) on meta", id="meta"),
        pytest.param(5.0, TypeError, "the float 5.0", id="float"),
        pytest.param(None, TypeError, "None", id="None"),
    ],
)
def test_what_a_slot_does_not_take(value: Any, error: type[Exception], found: str) -> None:
    slot = counter().session().arena("state")["count"]
    with pytest.raises(error) as caught:
        slot.copy_from(value)
    assert str(caught.value) == f"slot 'count': expected float32 of sizes (2, 3) but found {found}"
    assert torch.equal(slot.tensor, ONES * 5)
