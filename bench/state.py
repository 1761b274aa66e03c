"""Snapshot, restore, save and fork beside a plain copy and a plain write of the same bytes.

    python -m bench.state [--json] [--folder FOLDER]

Ours is measured in turn with what it is compared with; rows have the medians and their ratio. Forks
come first: memory that a copy of the whole has used once is cheaper to get again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from executorch.exir import to_edge
from torch import Tensor, nn

import pte_arenas as pa
from bench.rows import Row, as_json, compare, show
from pte_arenas.runtime import Program, Session, load_program

MIB = 1 << 20
PAGE = 4096


class Cache(nn.Module):
    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(nbytes, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        self.cache[:1].add_(x)
        return self.cache[:1] * 1


def program_of(nbytes: int) -> Program:
    module = Cache(nbytes)
    x = torch.ones(1, dtype=torch.uint8)
    exported = pa.export(
        {"forward": pa.EntryPoint(module.forward, (x,))}, [pa.Arena("state", ["cache"])]
    )
    return load_program(pa.to_executorch(to_edge(exported.programs), exported.arenas).buffer)


def cache(session: Session) -> Tensor:
    return session.arena("state")["cache"].tensor


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    kept = call()
    end = time.perf_counter()
    del kept
    return end - begin


def in_turn(
    stock: Callable[[], Any], ours: Callable[[], Any], rounds: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of both in each round, after one that does not count."""
    times = [(seconds(stock), seconds(ours)) for _ in range(rounds + 1)][1:]
    first, second = zip(*times, strict=True)
    return first, second


def copied(source: Tensor) -> Tensor:
    """All bytes, in memory that is as new as a fork's."""
    return torch.empty_like(source).copy_(source)


def touch(session: Session, first: int, count: int, step: int) -> None:
    """Writes `count` pages, each `step` pages behind the one before."""
    pages = cache(session).view(-1, PAGE)
    pages[first : first + count * step : step, 0] = 1


def fork_rows(program: Program, nbytes: int, rounds: int) -> list[Row]:
    """A session with a sixteenth of its pages written, forked both ways and then again."""
    rows = []
    forks: dict[str, list[float]] = {}
    touched = nbytes // PAGE // 16
    for name, step in (("scattered", 16), ("contiguous", 1)):
        for _ in range(rounds):
            session = program.session()
            touch(session, 0, touched, step)
            forks.setdefault(name, []).append(seconds(session.fork))
            for number in ("first", "second", "third"):
                forked: list[Session] = []
                label = f"{name}, copy-on-write, {number}"
                forks.setdefault(label, []).append(
                    seconds(lambda: forked.append(session.fork(copy_on_write=True)))  # noqa: B023
                )
                touch(session, 0, 256, step)
                touch(forked[0], 0, 1, step)
    # Only now, see above.
    source = cache(program.session())
    source.fill_(1)
    new = [seconds(lambda: copied(source)) for _ in range(3)]
    warm = torch.empty_like(source)
    warm.copy_(source)
    again = [seconds(lambda: warm.copy_(source)) for _ in range(3)]
    for label, found in forks.items():
        goal = 0.02 if label.endswith(("second", "third")) else 0.1
        what = f"fork {nbytes // MIB} MiB, {touched * PAGE // MIB} MiB written, {label}"
        for memory, times in (("new", new), ("warm", again)):
            whole = [statistics.median(times)] * len(found)
            rows.append(compare(what, f"memcpy of all to {memory} memory", whole, found, goal=goal))
    return rows


def snapshot_rows(session: Session, rounds: int) -> list[Row]:
    """All pages written; the copy goes to memory that was used before."""
    source = cache(session)
    target = source.clone()
    reused = session.snapshot()
    size = f"{source.numel() // MIB} MiB"
    copy = lambda: target.copy_(source)  # noqa: E731
    return [
        compare(f"{name} {size}", "memcpy to warm memory", *in_turn(copy, ours, rounds), goal=1.2)
        for name, ours in (
            ("snapshot, memory reused,", lambda: session.snapshot(reused)),
            ("restore", lambda: session.restore(reused)),
        )
    ]


def raw_write(source: Tensor, path: Path) -> None:
    sibling = path.with_suffix(".tmp")
    with sibling.open("wb", buffering=0) as file:
        view = memoryview(source.numpy())
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())
    sibling.replace(path)


def save_rows(session: Session, folder: Path, rounds: int) -> list[Row]:
    source = cache(session)
    times = in_turn(
        lambda: raw_write(source, folder / "stock"),
        lambda: session.save(folder / "ours.safetensors"),
        rounds,
    )
    size = f"{source.numel() // MIB} MiB"
    return [compare(f"save {size}", "write, fsync, rename", *times, goal=1.1)]


def measure(folder: Path | None = None, *, scale: int = 1, rounds: int = 7) -> list[Row]:
    """Compares forks of 1 GiB, snapshots and saves of 256 MiB, or a fraction of these."""
    rows = fork_rows(program_of(1024 * MIB // scale), 1024 * MIB // scale, rounds)
    session = program_of(256 * MIB // scale).session()
    cache(session).random_()
    rows += snapshot_rows(session, rounds)
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        return rows + save_rows(session, Path(directory), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--folder", type=Path, help="where to save; the disk matters")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes, to try it")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = measure(options.folder, scale=options.scale, rounds=options.rounds)
    print(as_json(rows)) if options.json else show(rows)


if __name__ == "__main__":
    main()
