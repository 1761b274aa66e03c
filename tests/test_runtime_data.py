"""What surrounds a program: memory that is shared without saying so, data files, logs, options."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.adopter import _parts
from pte_arenas.runtime import Program, load_program
from pte_arenas.splice import splice_program

X = torch.arange(8.0)


class Scale(nn.Module):
    """A weight, and state that starts at 5."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.full((8,), 5.0))

    def add(self, x: Tensor) -> Tensor:
        self.total.add_(self.linear(x))
        return self.total * 1

    def get(self) -> Tensor:
        return self.total * 1


class _Get(nn.Module):
    def __init__(self, module: Scale) -> None:
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        return self.module.get()


class _Add(_Get):
    def forward(self, x: Tensor) -> Tensor:
        return self.module.add(x)


@functools.cache
def _stock(*, shared: bool, constants: bool = False) -> bytes:
    module = Scale()
    with torch.no_grad():
        programs = {
            "add": torch.export.export(_Add(module), (X,)),
            "get": torch.export.export(_Get(module), ()),
        }
    planning = MemoryPlanningPass(share_mutable_buffers=shared)
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning,
        passes=[InitializedMutableBufferPass(["total"])],
        emit_mutable_buffer_names=True,
    )
    edge = to_edge(programs, constant_methods={"size": 8} if constants else None)
    data: bytes = edge.to_executorch(config).buffer
    return data


def _emit(config: ExecutorchBackendConfig, partitioner: Any = None) -> pa.ArenaProgramManager:
    module = Scale()
    exported = pa.export(
        {"add": pa.EntryPoint(module.add, (X,)), "get": pa.EntryPoint(module.get)},
        arenas=[pa.Arena("state", ["total"])],
    )
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioner)
    return pa.to_executorch(edge, exported.arenas, config)


@functools.cache
def _plain() -> bytes:
    data: bytes = _emit(ExecutorchBackendConfig()).buffer
    return data


def _eager(steps: int) -> Tensor:
    module = Scale()
    with torch.no_grad():
        for _ in range(steps):
            module.add(X)
    return module.total


def _check_shares(program: Program) -> None:
    session = program.session()
    for steps in (1, 2):
        torch.testing.assert_close(session.execute("add", (X,)), [_eager(steps)])
    # Loaded only now: its initial values must not be written over the state.
    torch.testing.assert_close(session.execute("get"), [_eager(2)])
    session.unload_method("add")
    torch.testing.assert_close(session.execute("add", (X,)), [_eager(3)])
    session.reset()
    torch.testing.assert_close(session.execute("get"), [_eager(0)])


AMBIGUOUS = (
    "shared_memory_ids: expected to be told whether the methods share memory, since all of them "
    "plan 32 bytes of memory id 2 and the program has no arenas; (2,) if it was exported with "
    "share_mutable_buffers=True, else ()"
)


def test_a_file_that_may_share_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shared.pte"
    path.write_bytes(_stock(shared=True))
    for source in (path, _stock(shared=True), _stock(shared=True, constants=True)):
        with pytest.raises(pa.ArenaError) as error:
            load_program(source)
        assert str(error.value) == AMBIGUOUS


@pytest.mark.parametrize("from_file", [False, True], ids=["bytes", "file"])
def test_shared_memory_ids(from_file: bool, tmp_path: Path) -> None:
    source: Any = _stock(shared=True)
    if from_file:
        path = tmp_path / "shared.pte"
        path.write_bytes(source)
        source = path
    program = load_program(source, shared_memory_ids=(2,))
    assert [slot.fqn for slot in program.arenas[0].slots] == ["module.total"]
    _check_shares(program)


def test_unshared_memory() -> None:
    for data in (_stock(shared=True), _stock(shared=False)):
        session = load_program(data, shared_memory_ids=()).session()
        torch.testing.assert_close(session.execute("add", (X,)), [_eager(1)])
        torch.testing.assert_close(session.execute("get"), [_eager(0)])
    load_program(_stock(shared=False))


@pytest.mark.parametrize(
    ("source", "ids", "message"),
    [
        pytest.param(
            _plain,
            (2,),
            "program_arenas: expected a program without arenas but found 'state'",
            id="arenas",
        ),
        pytest.param(
            lambda: _stock(shared=True),
            (2, 3),
            "shared_memory_ids: expected () or one memory id but found (2, 3); export again with "
            "pte_arenas.export, which has any number of arenas",
            id="several",
        ),
        pytest.param(
            lambda: _stock(shared=False),
            (2,),
            "memory_id: expected one with tensors in it but found 2; the methods plan 1",
            id="absent",
        ),
    ],
)
def test_shared_memory_ids_that_cannot_be(source: Any, ids: Any, message: str) -> None:
    with pytest.raises(pa.ArenaError) as error:
        load_program(source(), shared_memory_ids=ids)
    assert str(error.value) == message


@functools.cache
def _external() -> pa.ArenaProgramManager:
    return _emit(ExecutorchBackendConfig(external_constants=True))


def test_data_files(tmp_path: Path) -> None:
    _external().save(tmp_path / "scale.pte")
    _external().write_tensor_data_to_file(str(tmp_path))
    (data,) = tmp_path.glob("*.ptd")
    for data_path in (data, str(data), [data]):
        _check_shares(load_program(tmp_path / "scale.pte", data_path=data_path))
    _check_shares(load_program(_external().buffer, data_path=data))


def test_a_data_file_never_writes_an_arena(tmp_path: Path) -> None:
    """Its values for tensors in bound memory are not those of slots, which the program has."""
    module = Scale()
    with torch.no_grad():
        edge = to_edge(
            {
                "add": torch.export.export(_Add(module), (X,)),
                "get": torch.export.export(_Get(module), ()),
            }
        )
    for method in ("add", "get"):
        program = edge.exported_program(method)
        for node in program.graph.nodes:
            if program.graph_signature.inputs_to_buffers.get(node.name) == "module.total":
                node.meta["constant_tag"] = "state"
    emitted = edge.to_executorch(
        ExecutorchBackendConfig(
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
            passes=[InitializedMutableBufferPass(["total"])],
        )
    )
    emitted.write_tensor_data_to_file(str(tmp_path))
    data_path = tmp_path / "state.ptd"
    slot = pa.ArenaSlot(
        fqn="total", dtype="float32", sizes=(8,), dim_order=(0,), offset=0, nbytes=32
    )
    bindings = [pa.ArenaBinding(memory_id=2, arena=0)]
    head, rest = _parts(memoryview(emitted.buffer))
    arena = pa.ArenaLayout(name="state", size=32, slots=(slot,))
    chunks = splice_program([head, *rest], [arena], {"add": bindings, "get": bindings})
    session = load_program(b"".join(chunks), data_path=data_path).session()
    (first,) = session.execute("add", (X,))
    torch.testing.assert_close(first, _eager(1) - 5)
    torch.testing.assert_close(session.execute("get"), [first])
    # Where no arena is in the way the value of the data file is what a method starts from.
    private = load_program(emitted.buffer, data_path=data_path, shared_memory_ids=()).session()
    torch.testing.assert_close(private.execute("add", (X,)), [_eager(1)])
    torch.testing.assert_close(private.execute("get"), [_eager(0)])


def test_data_files_that_cannot_be(tmp_path: Path) -> None:
    session = load_program(_external().buffer).session()
    with pytest.raises(RuntimeError, match=r"^add: loading failed with .*data_path="):
        session.load_method("add")
    with pytest.raises(FileNotFoundError):
        load_program(_external().buffer, data_path=tmp_path / "absent.ptd")
    damaged = tmp_path / "damaged.ptd"
    damaged.write_bytes(bytes(100))
    with pytest.raises(pa.InvalidProgramError) as error:
        load_program(_external().buffer, data_path=damaged)
    assert str(error.value) == (
        "data_files[0]: expected a .ptd file that ExecuTorch accepts but it found "
        "Error::InvalidExternalData"
    )


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_etdump(backend: str, tmp_path: Path) -> None:
    partitioner = [XnnpackPartitioner()] if backend == "xnnpack" else None
    program = load_program(_emit(ExecutorchBackendConfig(), partitioner).buffer)
    session, other = program.session(event_tracer=True), program.session(event_tracer=True)
    path = tmp_path / "session.etdp"
    session.execute("get")
    session.write_etdump(path)  # ends this dump: the next has the calls below alone
    for _ in range(3):
        session.execute("add", (X,))
    session.write_etdump(path)
    events = [
        event for block in Inspector(etdump_path=str(path)).event_blocks for event in block.events
    ]
    (whole,) = [event for event in events if event.name == "Method::execute"]
    assert len(whole.perf_data.raw) == 3
    assert ("DELEGATE_CALL" in {event.name for event in events}) == (backend == "xnnpack")
    for empty in (session, other):
        with pytest.raises(pa.ArenaError, match=r"^expected events to write but found none"):
            empty.write_etdump(path)


def test_etdump_with_values(tmp_path: Path) -> None:
    session = load_program(_plain()).session(event_tracer=True, debug_buffer_size=1 << 16)
    path, values = tmp_path / "session.etdp", tmp_path / "values.bin"
    for steps in (1, 2):  # the buffer begins anew with each dump
        session.execute("add", (X,))
        session.write_etdump(path, values)
        inspector = Inspector(etdump_path=str(path), debug_buffer_path=str(values))
        (block,) = [each for each in inspector.event_blocks if each.name == "Execute"]
        torch.testing.assert_close(block.run_output[0], _eager(steps))


def test_values_need_room(tmp_path: Path) -> None:
    session = load_program(_plain()).session(event_tracer=True)
    session.execute("add", (X,))
    with pytest.raises(pa.ArenaError, match=r"^debug_path: expected values to write"):
        session.write_etdump(tmp_path / "session.etdp", tmp_path / "values.bin")
    assert not list(tmp_path.iterdir())
    with pytest.raises(
        pa.ArenaError, match=r"^debug_buffer_size: expected event_tracer=True as well"
    ):
        load_program(_plain()).session(debug_buffer_size=64)
    with pytest.raises(MemoryError, match=r"^debug_buffer_size: expected memory for \d+ bytes"):
        load_program(_plain()).session(event_tracer=True, debug_buffer_size=1 << 62)


def test_etdump_of_values_that_do_not_fit(tmp_path: Path) -> None:
    session = load_program(_plain()).session(event_tracer=True, debug_buffer_size=64)
    session.execute("add", (X,))
    with pytest.raises(pa.ArenaError, match=r"^debug_buffer_size: expected room for the values"):
        session.write_etdump(tmp_path / "session.etdp")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param(
            {"Xnnpack": {}},
            pa.ArenaError,
            "expected the name of a backend but found 'Xnnpack'; did you mean 'XnnpackBackend'",
            id="backend",
        ),
        pytest.param(
            {"XnnpackBackend": {"weight_cache_enabled": 0.5}},
            TypeError,
            "backend_options['XnnpackBackend']['weight_cache_enabled']: expected a bool, an int or "
            "a str but found the float 0.5",
            id="type",
        ),
        pytest.param(
            {"XnnpackBackend": {"n": 1 << 31}},
            ValueError,
            "backend_options['XnnpackBackend']['n']: expected an int of 32 bits but found "
            "2147483648",
            id="int",
        ),
        pytest.param(
            {"XnnpackBackend": {"s": "x" * 256}},
            ValueError,
            "backend_options['XnnpackBackend']['s']: expected at most 255 bytes but found 256",
            id="text",
        ),
        pytest.param(
            {"XnnpackBackend": {"k" * 64: True}},
            ValueError,
            f"backend_options['XnnpackBackend']['{'k' * 64}']: expected a name of at most 63 bytes "
            "but found 64",
            id="name",
        ),
    ],
)
def test_backend_options_that_cannot_be(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as raised:
        load_program(_plain()).session(backend_options=options)
    assert str(raised.value).startswith(message)  # other backends may be registered too
