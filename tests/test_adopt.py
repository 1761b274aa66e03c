"""Stock files whose methods share a memory id, made files with an arena."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from against_eager import LOAD_ORDERS, Model, check_calls, repeated
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime
from splice_values import header_of
from test_cli import run
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import load_program

X = torch.arange(4.0).view(1, 4)


class Mixer(nn.Module):
    """Weights and state; every method changes what it reads, as XNNPACK would else bake it in."""

    def __init__(self, start: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("mean", torch.full((1, 4), start))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.full((2, 2), start * 3))

    def push(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.mean.mul_(0.5).add_(y)
        self.steps.add_(1)
        return torch.relu(y) + 1.0

    def peek(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.mean.mul_(2.0)
        self.last.add_(self.mean.view(2, 2))
        return self.mean * x, self.steps * 1, self.last.view(4) * 1

    def clear(self) -> None:
        self.mean.fill_(1.0)


METHODS: dict[str, tuple[Tensor, ...]] = {"push": (X,), "peek": (X,), "clear": ()}


def model(start: float) -> Model:
    calls = repeated(("push", (X,)), ("peek", (X * 2,)), ("push", (-X,)), ("peek", (X,)), times=2)
    calls += [("clear", ()), ("peek", (X,))]
    return Model(lambda: Mixer(start), METHODS, calls, tolerance=1e-6)


class _Entry(nn.Module):
    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.mixer = module
        self.method = method

    def forward(self, *args: Tensor) -> Any:
        return getattr(self.mixer, self.method)(*args)


@functools.cache
def stock(
    start: float, *, xnnpack: bool = False, values: bool = False, names: bool = False
) -> bytes:
    """A stock export with shared mutable buffers."""
    module = Mixer(start)
    programs = {
        name: torch.export.export(_Entry(module, name), args) for name, args in METHODS.items()
    }
    partitioner = [XnnpackPartitioner()] if xnnpack else None
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        passes=[InitializedMutableBufferPass(["mean", "last"])] if values else [],
        emit_mutable_buffer_names=names,
    )
    edge = to_edge_transform_and_lower(programs, partitioner=partitioner)
    data: bytes = edge.to_executorch(config).buffer
    return data


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new.pte"


@pytest.mark.parametrize("load_order", LOAD_ORDERS)
@pytest.mark.parametrize("names", [False, True], ids=["unnamed", "named"])
@pytest.mark.parametrize("values", [False, True], ids=["zeros", "values"])
@pytest.mark.parametrize("xnnpack", [False, True], ids=["portable", "xnnpack"])
def test_adopted_file_does_what_eager_does(
    new: Path, load_order: str, *, xnnpack: bool, values: bool, names: bool
) -> None:
    start = 5.0 if values else 0.0
    pa.adopt(stock(start, xnnpack=xnnpack, values=values, names=names), new)
    check_calls(model(start), load_program(new).session(), load_order)


def test_reset_gives_the_initial_values_again(new: Path) -> None:
    pa.adopt(stock(5.0, values=True), new)
    session = load_program(new).session()
    check_calls(model(5.0), session)
    session.reset()
    check_calls(model(5.0), session)


@pytest.mark.parametrize(
    ("names", "fqns"),
    [
        (False, ["slot_0", "slot_1", "slot_2"]),
        (True, ["mixer.mean", "mixer.steps", "mixer.last"]),
    ],
)
def test_layout(new: Path, fqns: list[str], *, names: bool) -> None:
    layout = pa.adopt(stock(5.0, values=True, names=names), new)
    assert layout == pa.read_layout(new)
    (arena,) = layout.arenas
    assert (arena.name, arena.size, arena.lifetime) == ("memory_2", 48, "state")
    assert [(s.fqn, s.dtype, s.sizes, s.offset, s.nbytes) for s in arena.slots] == [
        (fqns[0], "float32", (1, 4), 0, 16),
        (fqns[1], "int64", (), 16, 8),
        (fqns[2], "float32", (2, 2), 32, 16),
    ]
    used = {
        method.name: [(access.slot, access.mode) for access in method.bindings[0].accesses]
        for method in layout.methods
    }
    everything = "read_write"
    assert used == {
        "push": [(0, everything), (1, everything)],
        "peek": [(0, everything), (1, everything), (2, everything)],
        "clear": [(0, everything)],
    }
    assert all(method.bindings[0].memory_id == 2 for method in layout.methods)


def test_named_arena(new: Path) -> None:
    assert pa.adopt(stock(0.0), new, name="state").arenas[0].name == "state"


def test_xnnpack_gets_the_bytes_that_it_may_read_behind_a_tensor(new: Path) -> None:
    assert pa.adopt(stock(0.0, xnnpack=True), new).arenas[0].size == 48 + 64
    data = pa.adopt(stock(0.0, xnnpack=True), new, require_arenas=False)
    assert [method.planned_buffers[1].size for method in data.methods] == [112, 112, 112]


@pytest.mark.parametrize("xnnpack", [False, True], ids=["portable", "xnnpack"])
@pytest.mark.parametrize("require_arenas", [True, False])
def test_everything_else_stays(new: Path, *, xnnpack: bool, require_arenas: bool) -> None:
    old = stock(5.0, xnnpack=xnnpack, values=True)
    pa.adopt(old, new, require_arenas=require_arenas)
    data = new.read_bytes()
    before, after = header_of(old), header_of(data)
    assert after.segment_data_size == before.segment_data_size > 0
    assert data[after.segment_base_offset :] == old[before.segment_base_offset :]
    was, now = deserialize_pte_binary(old), deserialize_pte_binary(data)
    assert [d.data for d in now.program.backend_delegate_data] == [
        d.data for d in was.program.backend_delegate_data
    ]
    assert bool(was.program.backend_delegate_data) == xnnpack
    assert now.program.named_data == was.program.named_data
    for plan in (*was.program.execution_plan, *now.program.execution_plan):
        plan.non_const_buffer_sizes = []
        for value in plan.values:
            if getattr(value.val, "allocation_info", None) is not None:
                value.val.data_buffer_idx = 0
    assert now.program.execution_plan == was.program.execution_plan
    for values in (torch.full((1, 4), 5.0), torch.full((2, 2), 15.0)):
        assert data.count(values.numpy().tobytes()) == 1


def test_stock_runtimes_refuse_the_new_file(new: Path) -> None:
    pa.adopt(stock(5.0, values=True), new)
    program = Runtime.get().load_program(new)
    with pytest.raises(RuntimeError, match="Failed to load method push, error: 0x:21"):
        program.load_method("push")


def test_stock_runtimes_load_a_file_that_does_not_require_arenas(new: Path) -> None:
    pa.adopt(stock(5.0, values=True), new, require_arenas=False)
    check_calls(model(5.0), load_program(new).session())
    program = Runtime.get().load_program(new)
    methods = {name: program.load_method(name) for name in METHODS}
    eager = Mixer(5.0)
    for name in ("push", "peek", "push", "peek"):
        have = [tensor.clone() for tensor in methods[name].execute((X,))]
        want = getattr(eager, name)(X)
        torch.testing.assert_close(have, list(want) if isinstance(want, tuple) else [want])


def test_old_and_new_may_be_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(stock(5.0, values=True))
    pa.adopt(str(path), str(path))
    check_calls(model(5.0), load_program(path).session())
    assert [file.name for file in tmp_path.iterdir()] == ["model.pte"]


def test_same_input_same_bytes(tmp_path: Path) -> None:
    for name in ("one.pte", "two.pte"):
        pa.adopt(stock(5.0, values=True), tmp_path / name)
    assert (tmp_path / "one.pte").read_bytes() == (tmp_path / "two.pte").read_bytes()


def test_a_refusal_leaves_the_new_file_alone(tmp_path: Path, new: Path) -> None:
    new.write_bytes(b"precious")
    with pytest.raises(pa.ArenaError):
        pa.adopt(stock(0.0), new, memory_id=3)
    with pytest.raises(pa.InvalidProgramError):
        pa.adopt(b"nonsense", new)
    assert new.read_bytes() == b"precious"
    assert [file.name for file in tmp_path.iterdir()] == ["new.pte"]


def test_a_file_with_arenas_is_refused(tmp_path: Path, new: Path) -> None:
    pa.adopt(stock(0.0), new, name="state")
    with pytest.raises(pa.ArenaError) as caught:
        pa.adopt(new, tmp_path / "newer.pte")
    assert str(caught.value) == (
        "program_arenas: expected a program without arenas but found 'state'"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"memory_id": 1},
            "memory_id: expected at least 2 but found 1; memory id 1 holds activations",
            id="activations",
        ),
        pytest.param(
            {"memory_id": "2"},
            "memory_id: expected at least 2 but found '2'; memory id 1 holds activations",
            id="no-number",
        ),
        pytest.param(
            {"memory_id": 3},
            "memory_id: expected one with tensors in it but found 3; the methods plan 1, 2",
            id="missing",
        ),
    ],
)
def test_memory_ids_that_cannot_be_state(
    new: Path, options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(pa.ArenaError) as caught:
        pa.adopt(stock(0.0), new, **options)
    assert str(caught.value) == message


# --- the command ---


def test_command(tmp_path: Path, new: Path) -> None:
    old = tmp_path / "old.pte"
    old.write_bytes(stock(5.0, values=True, names=True))
    done = run("adopt", old, new)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{new}: memory id 2 of 3 methods is arena 'memory_2', 48 bytes with 3 slots\n"
        "these slots start as zeros, since the file has no other values for them: 'mixer.steps'\n"
    )
    check_calls(model(5.0), load_program(new).session())


def test_command_options(tmp_path: Path, new: Path) -> None:
    old = tmp_path / "old.pte"
    old.write_bytes(stock(0.0))
    done = run("adopt", old, new, "--memory-id", "2", "--name", "s", "--no-require-arenas")
    assert (done.returncode, done.stderr) == (0, "")
    (arena,) = pa.read_layout(new).arenas
    assert arena.name == "s"
    assert Runtime.get().load_program(new).load_method("push") is not None


def test_command_refuses_in_one_sentence(tmp_path: Path, new: Path) -> None:
    old = tmp_path / "old.pte"
    old.write_bytes(stock(0.0))
    nowhere = tmp_path / "no" / "new.pte"
    sentences = {
        (old, new, "--memory-id", "3"): f"{old}: memory_id: expected one with tensors in it but "
        "found 3; the methods plan 1, 2\n",
        (tmp_path / "none.pte", new): f"{tmp_path / 'none.pte'}: no such file or directory\n",
        (old, nowhere): f"{nowhere}: no such file or directory\n",
    }
    for arguments, sentence in sentences.items():
        done = run("adopt", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
