"""State files: what is in them, what other readers see, and what is refused."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from executorch.exir import to_edge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime_programs import ONES, counter, counter_bytes
from safetensors.torch import load_file
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.layout import ArenaSlot
from pte_arenas.runtime import Program, Session, load_program
from pte_arenas.runtime.state_file import encode_head, in_file_order, read_head

Tensors = dict[str, Tensor]


class Mixed(nn.Module):
    """Two state arenas; a scalar, an empty and a channels-last slot among their slots."""

    def __init__(self) -> None:
        super().__init__()
        image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
        self.register_buffer("image", image)
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("half", torch.ones(5, dtype=torch.float16))
        self.register_buffer("nothing", torch.zeros(0, 3))

    def step(self, x: Tensor) -> Tensor:
        self.image.mul_(2)
        self.steps.add_(1)
        self.half.add_(1)
        self.flags.logical_not_()
        self.nothing.add_(1)
        return x + self.steps


@functools.cache
def mixed() -> Program:
    module = Mixed()
    exported = pa.export(
        {"step": pa.EntryPoint(module.step, (torch.ones(1),))},
        arenas=[
            pa.Arena("a", ["image", "steps", "nothing"]),
            pa.Arena("b", ["flags", "half"]),
            pa.Arena("work", lifetime="scratch"),
        ],
    )
    return load_program(pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer)


def state(session: Session, arenas: str = "ab") -> Tensors:
    return {
        name: session.arena(arena)[name].tensor.clone()
        for arena in arenas
        for name in session.arena(arena)
    }


def assert_same(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def stepped() -> Session:
    session = mixed().session()
    session.execute("step", (torch.ones(1),))
    return session


def test_a_loaded_session_goes_on_as_eager_does(tmp_path: Path) -> None:
    eager = Mixed()
    eager.step(torch.ones(1))
    stepped().save(tmp_path / "s.safetensors")
    session = mixed().session()
    session.load(tmp_path / "s.safetensors")
    assert_same(state(session), dict(eager.named_buffers()))
    (found,) = session.execute("step", (torch.ones(1),))
    assert torch.equal(found, eager.step(torch.ones(1)))
    assert_same(state(session), dict(eager.named_buffers()))


def test_safetensors_reads_the_file(tmp_path: Path) -> None:
    session = stepped()
    path = tmp_path / "s.safetensors"
    session.save(path)
    expected = state(session)
    found = load_file(path)
    found["image"] = found["image"].permute(0, 3, 1, 2)  # as its dim order in the metadata says
    assert_same(found, expected)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    bytes_of_program = mixed()._program.read(0, mixed()._program.nbytes())
    assert metadata == {
        "pte_arenas_state": "1",
        "program_sha256": hashlib.sha256(bytes_of_program).hexdigest(),
        "dim_order": '{"image":[0,2,3,1]}',
    }


def test_the_bytes_are_those_of_the_document(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    counter().session().save(path)
    sha256 = hashlib.sha256(counter_bytes()).hexdigest()
    header = (
        f'{{"__metadata__":{{"pte_arenas_state":"1","program_sha256":"{sha256}"}},'
        '"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
        '"count":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}}'
    )
    header += " " * (-len(header) % 8)
    data = bytes(8) + torch.full((6,), 5.0).numpy().tobytes()
    assert path.read_bytes() == len(header).to_bytes(8, "little") + header.encode() + data
    assert list(tmp_path.iterdir()) == [path]


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    """Whether the program came from a file or from memory."""
    path = tmp_path / "counter.pte"
    path.write_bytes(counter_bytes())
    load_program(path).session().save(tmp_path / "s")
    counter().session().load(tmp_path / "s")


@pytest.mark.parametrize("other", ["a", "b"])
def test_arenas_are_saved_and_loaded_by_name(tmp_path: Path, other: str) -> None:
    (name,) = {"a", "b"} - {other}
    session = stepped()
    session.save(tmp_path / "all")
    session.save(tmp_path / "one", arenas=[name])
    for path in (tmp_path / "all", tmp_path / "one"):
        fresh = mixed().session()
        fresh.load(path, arenas=[name, name])
        assert_same(state(fresh, name), state(session, name))
        assert_same(state(fresh, other), state(mixed().session(), other))


def test_another_plan_of_the_same_slots_fits(tmp_path: Path) -> None:
    module = Mixed()
    exported = pa.export(
        {"step": pa.EntryPoint(module.step, (torch.ones(1),))},
        arenas=[pa.Arena("all", ["half", "nothing", "flags", "steps", "image"], alignment=128)],
    )
    program = load_program(pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer)
    session = stepped()
    session.save(tmp_path / "s")
    other = program.session()
    with pytest.raises(pa.OtherProgramError):
        other.load(tmp_path / "s")
    other.load(tmp_path / "s", allow_other_program=True)
    found = {name: other.arena("all")[name].tensor for name in other.arena("all")}
    assert_same(found, state(session))


@functools.cache
def saved() -> bytes:
    head = encode_head(in_file_order(counter().arenas[0].slots), counter()._declared.sha256)
    return head + bytes(8) + torch.full((6,), 9.0).numpy().tobytes()


def file_of(header: Any, data: bytes = bytes(32)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def changed(change: Callable[[dict[str, Any]], Any], data: bytes = bytes(32)) -> bytes:
    """The header of a good file, changed in place or replaced by what `change` gives."""
    data_begin = 8 + int.from_bytes(saved()[:8], "little")
    header = json.loads(saved()[8:data_begin])
    replaced = change(header)
    return file_of(header if replaced is None else replaced, data)


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        del header[path[-1]]

    return change


SHA256 = counter()._declared.sha256
SLOT = {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
WANTED = "expected dtype, shape and data_offsets but found"
META = "expected metadata with strings program_sha256 and dim_order but found"
VERSION = "expected a state file of version 1 (pte_arenas_state in its metadata) but found"
REFUSED: list[tuple[str, type[pa.StateFileError], bytes, str]] = [
    ("empty", pa.DamagedStateError, b"", "expected at least 8 bytes but found 0"),
    ("length", pa.DamagedStateError, b"\1\0\0", "expected at least 8 bytes but found 3"),
    (
        "huge-header",
        pa.DamagedStateError,
        b"\xff" * 8,
        "expected a header of at most 100000000 bytes but found 18446744073709551615",
    ),
    (
        "truncated-header",
        pa.DamagedStateError,
        file_of(b"{}", b"")[:-1],
        "expected a header of 2 bytes but found 1: it is truncated",
    ),
    (
        "no-json",
        pa.DamagedStateError,
        file_of(b'{"a"'),
        "expected a header in JSON but found Expecting ':' delimiter: line 1 column 5 (char 4)",
    ),
    (
        "no-utf8",
        pa.DamagedStateError,
        file_of(b'{"\xff"'),
        (
            "expected a header in JSON but found 'utf-8' codec can't decode byte 0xff in position "
            "2: invalid start byte"
        ),
    ),
    (
        "repeated",
        pa.DamagedStateError,
        file_of(b'{"a": 1, "a": 2}'),
        "expected a header in JSON but found a name twice in one object",
    ),
    (
        "list",
        pa.DamagedStateError,
        file_of(b"[]"),
        "expected a header that begins with { but found another",
    ),
    (
        "space",
        pa.DamagedStateError,
        file_of(b" {}"),
        "expected a header that begins with { but found another",
    ),
    ("no-metadata", pa.DamagedStateError, file_of(b"{}", b""), f"{VERSION} none"),
    (
        "version",
        pa.DamagedStateError,
        changed(put("__metadata__", "pte_arenas_state", value="2")),
        f'{VERSION} "2"',
    ),
    (
        "no-hash",
        pa.DamagedStateError,
        changed(drop("__metadata__", "program_sha256")),
        META + ' {"pte_arenas_state": "1"}',
    ),
    (
        "metadata-number",
        pa.DamagedStateError,
        changed(put("__metadata__", "more", value=3)),
        META + " 3",
    ),
    (
        "dim-order-text",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"count": [1, -1]}')),
        META + " -1",
    ),
    (
        "dim-order-rank",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"count": [1]}')),
        (
            "tensor 'count': expected a dim order that is a permutation of 0 to 2 (exclusive) but "
            "found [1]"
        ),
    ),
    (
        "dim-order-name",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"more": []}')),
        "expected dim orders of its tensors but found one of 'more'",
    ),
    (
        "entry",
        pa.DamagedStateError,
        changed(put("steps", value=3)),
        f"tensor 'steps': {WANTED} 3",
    ),
    (
        "entry-field",
        pa.DamagedStateError,
        changed(put("steps", "more", value=3)),
        f"tensor 'steps'.more: {WANTED} 3",
    ),
    (
        "shape",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[2, 3.0])),
        f"tensor 'count'.shape.1: {WANTED} 3.0",
    ),
    (
        "negative-shape",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[-2, -3])),
        f"tensor 'count'.shape.0: {WANTED} -2",
    ),
    (
        "rank",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[1] * 17)),
        f"tensor 'count'.shape: {WANTED} {[1] * 17}",
    ),
    (
        "unknown-dtype",
        pa.DamagedStateError,
        changed(put("steps", "dtype", value="C64")),
        "tensor 'steps': expected a dtype of slots but found \"C64\"",
    ),
    (
        "nbytes",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[2, 2])),
        "tensor 'count': expected 16 bytes for shape [2, 2] of float32 but found 24",
    ),
    (
        "hole",
        pa.DamagedStateError,
        changed(put("count", "data_offsets", value=[12, 36])),
        "tensor 'count': expected bytes from 8 on but found 12",
    ),
    (
        "overlap",
        pa.DamagedStateError,
        changed(put("count", "data_offsets", value=[4, 28])),
        "tensor 'count': expected bytes from 8 on but found 4",
    ),
    (
        "truncated",
        pa.DamagedStateError,
        saved()[:-1],
        "expected 32 bytes behind the header but found 31: it is truncated",
    ),
    (
        "longer",
        pa.DamagedStateError,
        saved() + b"\0",
        "expected 32 bytes behind the header but found 33",
    ),
    (
        "other-program",
        pa.OtherProgramError,
        changed(put("__metadata__", "program_sha256", value="0123456789abcdef0")),
        (
            f"expected state of the program with SHA-256 {SHA256[:16]}... but found state of "
            "'0123456789abcdef'...: allow_other_program=True loads it where all slots fit"
        ),
    ),
    (
        "missing",
        pa.MissingSlotError,
        changed(drop("count"), bytes(8)),
        (
            "expected slot 'count' of arena 'state' but found none: arenas=[...] loads the arenas "
            "that the file has"
        ),
    ),
    (
        "unknown",
        pa.UnknownSlotError,
        changed(put("more", value={**SLOT, "data_offsets": [32, 40]}), bytes(40)),
        "expected slots of the program but found 'more'",
    ),
    (
        "dtype",
        pa.SlotMismatchError,
        changed(put("count", "dtype", value="I32")),
        "slot 'count': expected float32 but found int32",
    ),
    (
        "sizes",
        pa.SlotMismatchError,
        changed(put("count", "shape", value=[3, 2])),
        "slot 'count': expected sizes [2, 3] but found [3, 2]",
    ),
    (
        "dim-order",
        pa.SlotMismatchError,
        changed(
            lambda header: {
                **header,
                "__metadata__": {**header["__metadata__"], "dim_order": '{"count": [1, 0]}'},
                "count": {**header["count"], "shape": [3, 2]},
            }
        ),
        "slot 'count': expected dim order [0, 1] but found [1, 0]",
    ),
]


@pytest.mark.parametrize(
    ("error", "data", "message"),
    [pytest.param(*rest, id=name) for name, *rest in REFUSED],
)
def test_files_that_do_not_fit_change_nothing(
    tmp_path: Path, error: type[pa.StateFileError], data: bytes, message: str
) -> None:
    path = tmp_path / "s.safetensors"
    path.write_bytes(data)
    session = counter().session()
    session.execute("bump", (ONES,))
    before = state_bytes(session)
    with pytest.raises(pa.StateFileError) as raised:
        session.load(path)
    assert type(raised.value) is error
    assert str(raised.value) == f"{path}: {message}"
    assert state_bytes(session) == before


def state_bytes(session: Session) -> dict[str, bytes]:
    arena = session.arena("state")
    return {name: arena[name].tensor.numpy().tobytes() for name in arena}


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    path.write_bytes(saved())
    session = counter().session()
    session.load(path)
    assert torch.equal(session.execute("get")[0], ONES * 9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@functools.cache
def one_session() -> Session:
    return counter().session()


def look(folder: Path, data: bytes) -> None:
    """Loads a file: either nothing changes, or the other reader sees the same in it."""
    path = folder / "s.safetensors"
    path.write_bytes(data)
    session = one_session()
    session.reset()
    before = state_bytes(session)
    try:
        session.load(path, allow_other_program=True)
    except pa.StateFileError:
        assert state_bytes(session) == before
        return
    found = safetensors.torch.load(data)
    assert {name: tensor.numpy().tobytes() for name, tensor in found.items()} == state_bytes(
        session
    )


FUZZED = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZED
@given(data=st.binary(max_size=64))
def test_no_bytes_harm(folder: Path, data: bytes) -> None:
    look(folder, data)
    look(folder, file_of(data))


@FUZZED
@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(saved()) - 1), st.integers(0, 255)), min_size=1, max_size=3
    ),
    length=st.integers(0, len(saved()) + 8),
)
def test_no_damaged_bytes_harm(folder: Path, flips: list[tuple[int, int]], length: int) -> None:
    data = bytearray(saved())
    for at, value in flips:
        data[at] = value
    look(folder, bytes(data))
    look(folder, bytes(data).ljust(length, b"\0")[:length])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["F32", "I64", "1", "{}", SHA256]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
PLACES = st.sampled_from(
    [
        ("__metadata__",),
        ("__metadata__", "pte_arenas_state"),
        ("__metadata__", "dim_order"),
        ("steps",),
        ("steps", "shape"),
        ("count", "dtype"),
        ("count", "shape"),
        ("count", "data_offsets"),
        ("more",),
    ]
)


@FUZZED
@given(place=PLACES, value=JSON)
def test_no_header_harms(folder: Path, place: tuple[str, ...], value: Any) -> None:
    look(folder, changed(put(*place, value=value)))


@FUZZED
@given(depth=st.integers(1, 100_000))
def test_no_nesting_harms(folder: Path, depth: int) -> None:
    look(folder, file_of(b'{"a":' + b"[" * depth))


def test_dtypes_that_files_lack_are_refused() -> None:
    slot = ArenaSlot(fqn="q", dtype="qint8", sizes=(2,), dim_order=(0,), offset=0, nbytes=2)
    with pytest.raises(pa.ArenaError) as raised:
        encode_head([slot], SHA256)
    assert str(raised.value) == (
        "slot 'q': expected a dtype that .safetensors files have but found qint8: leave its arena "
        "out or keep the state in a snapshot"
    )
    named = copy.copy(slot).model_copy(update={"fqn": "__metadata__", "dtype": "int8"})
    with pytest.raises(pa.ArenaError) as raised:
        encode_head([named], SHA256)
    assert str(raised.value) == (
        "expected slots of other names but found '__metadata__': leave its arena out or keep the "
        "state in a snapshot"
    )


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    session = counter().session()
    missing = tmp_path / "missing" / "s.safetensors"
    with pytest.raises(FileNotFoundError):
        session.save(missing)
    with pytest.raises(FileNotFoundError):
        session.load(missing)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        session.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


WRITER = """
import os, resource, signal, sys, warnings
warnings.simplefilter("ignore")
import torch
from pte_arenas.runtime import load_program

program, target, how = sys.argv[1:]
session = load_program(program).session()
session.execute("bump", (torch.ones(2, 3),))

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if how == "writing":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
elif how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
else:
    setattr(os, how, die)
session.save(target)
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param("writing", -signal.SIGXFSZ, id="writing"),
        pytest.param("fsync", -signal.SIGKILL, id="written"),
        pytest.param("rename", -signal.SIGKILL, id="on-the-disk"),
    ],
)
def test_a_killed_writer_leaves_the_old_file(tmp_path: Path, how: str, expected: int) -> None:
    program = tmp_path / "counter.pte"
    program.write_bytes(counter_bytes())
    path = tmp_path / "s.safetensors"
    session = load_program(program).session()
    session.save(path)
    before = path.read_bytes()
    command = [sys.executable, "-c", WRITER, program, path, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stderr
    assert path.read_bytes() == before
    session.load(path)
    assert len(list(tmp_path.iterdir())) == 3, "what the writer had begun"
    session.save(path)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    program = tmp_path / "counter.pte"
    program.write_bytes(counter_bytes())
    path = tmp_path / "s.safetensors"
    path.write_bytes(b"old")
    command = [sys.executable, "-c", WRITER, program, path, "full"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.endswith(f"OSError: [Errno 27] File too large: '{path}'\n"), done.stderr
    assert path.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [program, path]


def test_read_head_names_offsets_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(saved())
    with path.open("rb") as file:
        found = read_head(file, str(path))
    assert found.program_sha256 == SHA256
    assert found.tensors["count"].offset == len(saved()) - 24
