"""Many sessions on many threads: executions, forks, snapshots, resets and unloads mixed."""

from __future__ import annotations

import copy
import gc
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from executorch.exir import to_edge
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Program, Session, load_program

THREADS, SESSIONS = 8, 8
# A million in some minutes: PTE_ARENAS_LOAD=1000000 python -m pytest tests/test_load.py
EXECUTIONS = int(os.environ.get("PTE_ARENAS_LOAD", "40000"))
STEP = 20
"""Executions between two other operations."""


class Counters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.arange(2048))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def add(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        self.count.add_(1)
        return self.total[:2] * self.count

    def double(self) -> Tensor:
        self.total.mul_(2).remainder_(1 << 20)
        return self.total[-2:] * 1


class Pair:
    """A session and the module that does the same in eager PyTorch."""

    def __init__(self, session: Session, eager: Counters) -> None:
        self.session, self.eager = session, eager

    def execute(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            x = torch.tensor([rng.randrange(100)])
            have, want = self.session.execute("add", (x,)), self.eager.add(x)
        else:
            have, want = self.session.execute("double"), self.eager.double()
        assert torch.equal(have[0], want)

    def check(self) -> None:
        arena = self.session.arena("state")
        for name, buffer in self.eager.named_buffers():
            assert torch.equal(arena[name].tensor, buffer)


def operate(pair: Pair, rng: random.Random) -> Pair:
    """Does something besides executing, and returns what to go on with."""
    session = pair.session
    kind = rng.choice(("fork", "copy-on-write fork", "snapshot", "reset", "unload", "nothing"))
    if kind.endswith("fork"):
        forked = Pair(session.fork(copy_on_write=kind != "fork"), copy.deepcopy(pair.eager))
        for each in (pair, forked):
            each.execute(rng)
            each.check()
        return rng.choice((pair, forked))
    if kind == "snapshot":
        snapshot, eager = session.snapshot(), copy.deepcopy(pair.eager)
        for _ in range(3):
            pair.execute(rng)
        session.restore(snapshot)
        pair.eager = eager
    elif kind == "reset":
        session.reset()
        pair.eager = Counters()
    elif kind == "unload":
        session.unload_method(rng.choice(("add", "double")))
    return pair


def work(program: Program, seed: int, executions: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    pairs = [Pair(program.session(), Counters()) for _ in range(SESSIONS)]
    for _ in range(executions // STEP):
        index = rng.randrange(SESSIONS)
        for _ in range(STEP):
            pairs[index].execute(rng)
        pairs[index] = operate(pairs[index], rng)
    for pair in pairs:
        pair.check()


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_many_sessions_on_many_threads() -> None:
    module = Counters()
    exported = pa.export(
        {"add": pa.EntryPoint(module.add, (torch.tensor([1]),)), "double": module.double},
        [pa.Arena("state", ["*"])],
    )
    program = load_program(pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer)
    sizes = []
    for turn in range(4):  # the first ones fill caches and the allocator's pools
        with ThreadPoolExecutor(THREADS) as pool:
            each = EXECUTIONS // THREADS // 4
            done = [pool.submit(work, program, THREADS * turn + i, each) for i in range(THREADS)]
        for future in done:
            future.result()
        sizes.append(resident())
    # 16 KiB of state in some hundred sessions and snapshots a turn, were they kept.
    assert sizes[3] - sizes[1] < 4 << 20
