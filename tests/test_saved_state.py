"""State files: what is in them, what other readers see, and what is refused."""

from __future__ import annotations

import functools
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors
import torch
from executorch.exir import to_edge
from runtime_programs import counter, counter_bytes
from safetensors.torch import load_file
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Program, Session, load_program

Tensors = dict[str, Tensor]


class Mixed(nn.Module):
    """Two state arenas; a scalar and an empty slot among their slots."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("image", torch.arange(24.0).reshape(1, 2, 3, 4))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("lengths", torch.ones(5, dtype=torch.float16))
        self.register_buffer("nothing", torch.zeros(0, 3))

    def step(self, x: Tensor) -> Tensor:
        self.image.mul_(2)
        self.steps.add_(1)
        self.lengths.add_(1)
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
            pa.Arena("b", ["flags", "lengths"]),
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
    assert_same(load_file(path), state(session))
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    bytes_of_program = mixed()._program.read(0, mixed()._program.nbytes())
    assert metadata == {
        "pte_arenas_state": "1",
        "program_sha256": hashlib.sha256(bytes_of_program).hexdigest(),
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
        arenas=[pa.Arena("all", ["lengths", "nothing", "flags", "steps", "image"], alignment=128)],
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


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    session = counter().session()
    missing = tmp_path / "missing" / "s.safetensors"
    with pytest.raises(FileNotFoundError) as error:
        session.save(missing)
    assert error.value.filename == str(missing)
    with pytest.raises(FileNotFoundError):
        session.load(missing)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        session.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    session, link, target = stepped(), tmp_path / "link", tmp_path / "target"
    link.symlink_to("target")
    session.save(link)
    assert link.is_symlink() and target.is_file()
    other = mixed().session()
    other.load(link)
    assert_same(state(other), state(session))


def test_permissions_and_long_names_stay(tmp_path: Path) -> None:
    session = stepped()
    private = tmp_path / "private"
    session.save(private)
    private.chmod(0o640)
    session.save(private)
    assert private.stat().st_mode & 0o777 == 0o640
    long = tmp_path / ("n" * 255)
    session.save(long)
    assert sorted(tmp_path.iterdir()) == [long, private]


def test_bools_are_0_or_1(tmp_path: Path) -> None:
    path, session = tmp_path / "s", stepped()
    session.save(path)
    raw = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(raw[:8], "little")
    (first, _) = json.loads(raw[8:begin])["flags"]["data_offsets"]
    raw[begin + first + 1] = 7
    path.write_bytes(raw)
    before = state(session)
    with pytest.raises(pa.DamagedStateError) as error:
        session.load(path)
    assert str(error.value) == (f"{path}: slot 'flags': expected bools of 0 or 1 but found 7")
    assert_same(state(session), before)


def test_what_is_no_snapshot_or_session_is_refused() -> None:
    session = counter().session()
    with pytest.raises(TypeError, match=r"^snapshot: expected a Snapshot but found None$"):
        session.restore(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^reuse: expected a Snapshot but found str$"):
        session.snapshot("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^scratch_from: expected a Session but found str$"):
        counter().session(scratch_from="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^arenas: expected a dict of memory by name"):
        counter().session(arenas=[b""])  # type: ignore[arg-type]


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
        pytest.param("replace", -signal.SIGKILL, id="on-the-disk"),
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
