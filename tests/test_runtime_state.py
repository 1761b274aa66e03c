"""Snapshots and forks of sessions, in Python and against eager."""

from __future__ import annotations

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from runtime_programs import ONES, Counter, counter, counter_bytes

import pte_arenas as pa
from pte_arenas.runtime import Program, Session, Snapshot


@pytest.fixture
def program() -> Program:
    return counter()


@pytest.fixture
def session(program: Program) -> Session:
    session = program.session()
    session.execute("bump", (ONES,))
    return session


def state(session: Session) -> tuple[float, int]:
    count, steps = session.execute("get")
    assert count.unique().numel() == 1
    return float(count[0, 0]), int(steps)


def test_restore_gives_back_what_was(session: Session, program: Program) -> None:
    snapshot = session.snapshot()
    view = session.arena("state")["count"].tensor
    session.execute("bump", (ONES * 4,))
    assert state(session) == (10, 2)
    session.restore(snapshot)
    assert state(session) == (6, 1)
    assert torch.equal(view, ONES * 6)
    other = program.session()
    other.restore(snapshot, ["state"])
    assert state(other) == (6, 1)


def test_a_snapshot_is_used_again(session: Session) -> None:
    snapshot = session.snapshot()
    assert isinstance(snapshot, Snapshot)
    session.execute("bump", (ONES,))
    assert session.snapshot(snapshot) is snapshot
    session.reset()
    session.restore(snapshot)
    assert state(session) == (7, 2)


def test_a_snapshot_outlives_its_session(program: Program) -> None:
    session = program.session()
    session.execute("bump", (ONES,))
    snapshot = session.snapshot()
    del session
    other = program.session()
    other.restore(snapshot)
    assert state(other) == (6, 1)


def test_snapshots_of_other_programs_are_refused(session: Session) -> None:
    with pytest.raises(pa.ArenaError) as raised:
        session.restore(counter().session().snapshot())
    assert str(raised.value) == (
        "expected a snapshot of the session's own program but found one of another program, or of "
        "the same file loaded another time: take snapshots of sessions of one loaded program, or "
        "use save and load"
    )
    assert state(session) == (6, 1)


def test_names_of_arenas_are_checked(session: Session, tmp_path: Path) -> None:
    snapshot = session.snapshot()
    calls = (
        lambda names: session.restore(snapshot, names),
        lambda names: session.save(tmp_path / "s", names),
        lambda names: session.load(tmp_path / "s", names),
    )
    for call in calls:
        with pytest.raises(pa.ArenaError) as raised:
            call(["state", "stat"])
        assert str(raised.value) == (
            "expected the name of a state arena but found 'stat'; did you mean 'state'?"
        )
        with pytest.raises(TypeError) as mistyped:
            call("state")
        assert str(mistyped.value) == "expected a list of names of arenas but found the str 'state'"
        with pytest.raises(ValueError, match="expected names of arenas, or None for all of them"):
            call([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("copy_on_write", [False, True])
def test_forks_are_independent(session: Session, copy_on_write: bool) -> None:
    eager = Counter()
    eager.bump(ONES)
    other_eager = copy.deepcopy(eager)
    bump = session.load_method("bump")
    view = session.arena("state")["count"].tensor
    other = session.fork(copy_on_write=copy_on_write)
    assert repr(other) == "Session(loaded=[], arenas=[state])"
    for x in (ONES, ONES * 3):
        assert torch.equal(bump.execute((x,))[0], eager.bump(x))
        assert torch.equal(other.execute("bump", (x * 2,))[0], other_eager.bump(x * 2))
    assert torch.equal(view, eager.count)
    for found, expected in ((session, eager), (other, other_eager)):
        assert all(map(torch.equal, found.execute("get"), expected.get()))
    del session, bump
    other.reset()
    assert state(other) == (5, 0)


def test_forks_race_with_execution(session: Session) -> None:
    """Each fork is of a moment between two executions."""

    def fork(number: int) -> None:
        snapshot = None
        for _ in range(100):
            count, steps = state(session.fork(copy_on_write=number % 2 == 0))
            assert count == 5 + steps
            snapshot = session.snapshot(snapshot)
            other = session.fork()
            other.restore(snapshot)
            count, steps = state(other)
            assert count == 5 + steps
            session.execute("bump", (ONES,))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fork, range(4)))
    assert state(session) == (406, 401)


CHILD = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
from pte_arenas.runtime import load_program

def bump(session, by):
    return float(session.execute("bump", (torch.full((2, 3), by),))[0][0, 0])

session = load_program(sys.argv[1]).session()
bump(session, 1.0)
other = session.fork(copy_on_write=sys.argv[2] == "True")
child = os.fork()
if child == 0:
    right = bump(session, 10.0) == 16 and bump(other, 20.0) == 26
    right = right and bump(session.fork(copy_on_write=True), 1.0) == 17
    os._exit(0 if right else 3)
assert os.waitpid(child, 0)[1] == 0
assert bump(session, 1.0) == 7
assert bump(other, 2.0) == 8
"""


@pytest.mark.parametrize("copy_on_write", [False, True])
def test_forks_are_independent_in_child_processes(tmp_path: Path, copy_on_write: bool) -> None:
    path = tmp_path / "counter.pte"
    path.write_bytes(counter_bytes())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, path, str(copy_on_write)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
