"""The reader of state files against damage of any kind, and against the safetensors package."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused_state_files import REFUSED, SHA256, changed, file_of, put, saved
from runtime_programs import ONES, counter

import pte_arenas as pa
from pte_arenas.dtypes import DTYPES
from pte_arenas.layout import ArenaSlot
from pte_arenas.runtime import Session
from pte_arenas.runtime.state_file import encode_head, read_head


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
    named = slot.model_copy(update={"fqn": "__metadata__", "dtype": "int8"})
    with pytest.raises(pa.ArenaError) as raised:
        encode_head([named], SHA256)
    assert str(raised.value) == (
        "expected slots of other names but found '__metadata__': leave its arena out or keep the "
        "state in a snapshot"
    )


def test_dim_orders_are_kept_and_every_reader_sees_the_right_numbers(tmp_path: Path) -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    order = (0, 2, 3, 1)
    slot = ArenaSlot(
        fqn="image", dtype="float32", sizes=(1, 2, 3, 4), dim_order=order, offset=0, nbytes=96
    )
    path = tmp_path / "s.safetensors"
    head = encode_head([slot], SHA256)
    path.write_bytes(head + image.permute(order).contiguous().numpy().tobytes())
    with safetensors.safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["dim_order"]) == {"image": [0, 2, 3, 1]}
        assert torch.equal(file.get_tensor("image").permute(0, 3, 1, 2), image)
    with path.open("rb") as file:
        found = read_head(file, str(path))
    assert found.program_sha256 == SHA256
    tensor = found.tensors["image"]
    assert (tensor.dtype, tensor.sizes, tensor.dim_order) == (slot.dtype, slot.sizes, order)
    assert tensor.offset == len(head)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not name.startswith("q")])
def test_dtypes_are_those_of_safetensors(tmp_path: Path, dtype: str) -> None:
    width = DTYPES[dtype].width
    slot = ArenaSlot(fqn="x", dtype=dtype, sizes=(3,), dim_order=(0,), offset=0, nbytes=3 * width)
    if dtype == "bits16":
        with pytest.raises(pa.ArenaError):
            encode_head([slot], SHA256)
        return
    found = safetensors.torch.load(encode_head([slot], SHA256) + bytes(3 * width))["x"]
    assert (found.dtype, found.shape) == (getattr(torch, dtype), (3,))
