"""What is read out of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from corpus import device, file_with, slot

import pte_arenas as pa
from pte_arenas.runtime import _C, load_program

GOLDEN = Path(__file__).parent / "golden"

EXPECTED = pa.ProgramLayout(
    arenas=(
        pa.ArenaLayout(
            name="state",
            size=96,
            slots=(
                pa.ArenaSlot(
                    fqn="cache",
                    dtype="float32",
                    sizes=(4, 4),
                    dim_order=(0, 1),
                    offset=0,
                    nbytes=64,
                    data_buffer_idx=1,
                ),
                pa.ArenaSlot(fqn="steps", dtype="int64", offset=64, nbytes=8),
            ),
        ),
        pa.ArenaLayout(name="scratch", size=32, lifetime="scratch"),
    ),
    methods=(
        pa.MethodLayout(
            name="step",
            planned_buffers=(
                pa.PlannedBuffer(size=128),
                pa.PlannedBuffer(size=0),
                pa.PlannedBuffer(size=0),
            ),
            bindings=(
                pa.ArenaBinding(
                    memory_id=2,
                    arena=0,
                    accesses=(
                        pa.SlotAccess(slot=0, mode="read_write"),
                        pa.SlotAccess(slot=1, mode="write"),
                    ),
                    tensors=(
                        pa.BoundTensor(value=2, dtype="float32", sizes=(4, 4), offset=0, nbytes=64),
                        pa.BoundTensor(value=3, dtype="int64", sizes=(), offset=64, nbytes=8),
                    ),
                ),
                pa.ArenaBinding(
                    memory_id=3,
                    arena=1,
                    tensors=(
                        pa.BoundTensor(value=4, dtype="float32", sizes=(5,), offset=8, nbytes=20),
                    ),
                ),
            ),
        ),
        pa.MethodLayout(
            name="peek",
            planned_buffers=(pa.PlannedBuffer(size=96),),
            bindings=(
                pa.ArenaBinding(
                    memory_id=1,
                    arena=0,
                    accesses=(pa.SlotAccess(slot=0, mode="read"),),
                    tensors=(
                        pa.BoundTensor(
                            value=0,
                            dtype="float32",
                            sizes=(2, 4),
                            offset=32,
                            nbytes=32,
                            data_buffer_idx=1,
                        ),
                    ),
                ),
            ),
        ),
    ),
    initial_data=pa.InitialData(size=80, offsets=(0, 16)),
)


def test_reads_every_field(tmp_path: Path) -> None:
    data = file_with({})
    path = tmp_path / "program.pte"
    path.write_bytes(data)
    assert pa.read_layout(data) == EXPECTED
    assert pa.read_layout(path) == EXPECTED
    assert pa.read_layout(str(path)) == EXPECTED


def test_what_is_read_is_what_the_constructor_makes() -> None:
    layout = pa.read_layout(file_with({}))
    assert pa.ProgramLayout.model_validate_json(layout.model_dump_json()) == layout
    assert layout.model_dump_json() == EXPECTED.model_dump_json()


def test_reads_the_rest() -> None:
    layout = pa.read_layout(
        file_with(
            {
                "arenas[0].slots[0].dimOrder": [1, 0],
                "arenas[1].alignment": 16,
                "arenas[1].deviceType": 1,
                "arenas[1].deviceIndex": 3,
                "executionPlan[0].nonConstBufferDevice": [device(3, 1, 3), device(1, 7, -2)],
            }
        )
    )
    assert layout.slot("cache").dim_order == (1, 0)
    scratch = layout.arena("scratch")
    assert (scratch.alignment, scratch.device_type, scratch.device_index) == (16, "cuda", 3)
    assert layout.method("step").planned_buffers == (
        pa.PlannedBuffer(size=128, device_type=7, device_index=-2),
        pa.PlannedBuffer(size=0),
        pa.PlannedBuffer(size=0, device_type="cuda", device_index=3),
    )


def test_reads_a_stock_program() -> None:
    changes = {f"executionPlan[{m}].arenaBindings": None for m in (0, 1)}
    layout = pa.read_layout(file_with({"programArenas": None, **changes}))
    assert layout.arenas == ()
    assert [method.name for method in layout.methods] == ["step", "peek"]
    assert [method.bindings for method in layout.methods] == [(), ()]
    assert layout.planned_bytes == layout.unshared_bytes == 128 + 96


@pytest.mark.parametrize("name", ["counter", "mixed", "stock"])
def test_reads_golden_files(name: str) -> None:
    expected = pa.ProgramLayout.model_validate_json((GOLDEN / f"{name}.json").read_text())
    assert pa.read_layout(GOLDEN / f"{name}.pte") == expected
    _C.check((GOLDEN / f"{name}.pte").read_bytes())


def test_runs_a_golden_file() -> None:
    session = load_program(GOLDEN / "counter.pte").session()
    assert session.execute("get", ())[0].item() == 5
    assert session.execute("forward", (torch.tensor(2),))[0].item() == 5 + 2
    assert session.execute("get", ())[0].item() == 5 + 2
    session.execute("reset", ())
    assert session.execute("get", ())[0].item() == 5


def test_every_golden_file_is_listed() -> None:
    readme = (GOLDEN / "README.md").read_text()
    assert {path.stem for path in GOLDEN.glob("*.pte")} == {"counter", "mixed", "stock"}
    assert all(f"`{path.name}`" in readme for path in GOLDEN.glob("*.pte"))


def test_does_not_read_the_weights(tmp_path: Path) -> None:
    """A sparse terabyte: reading it, or asking for memory to hold it, would not come to an end."""
    size = 2**40
    data = bytearray(file_with({"segments[0].size": size}, segments=b""))
    data[32:40] = size.to_bytes(8, "little")
    path = tmp_path / "large.pte"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + size)
    layout = pa.read_layout(path)
    assert layout.initial_data == pa.InitialData(size=size, offsets=(0, 16))


def test_reads_many_slots_and_methods() -> None:
    slots = [slot(f"s{i}", [4], offset=16 * i, nbytes=16) for i in range(1000)]
    changes = {"arenas[0].slots": slots, "arenas[0].size": 16000}
    changes |= {"executionPlan[1].arenaBindings": None, "executionPlan[0].values": None}
    layout = pa.read_layout(file_with(changes))
    assert len(layout.arena("state").slots) == 1000
    assert layout.slot("s999").end == 16000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("missing.pte", FileNotFoundError, id="missing"),
        pytest.param(".", IsADirectoryError, id="folder"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        pa.read_layout(tmp_path / name)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.pte"
    path.touch()
    with pytest.raises(pa.InvalidProgramError) as caught:
        pa.read_layout(path)
    assert caught.value.where == "program"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_may_be_of_any_kind(kind: type) -> None:
    data = file_with({})
    pa.check(kind(data))
    assert pa.read_layout(kind(data)) == pa.read_layout(data)
