"""Snapshot, restore, save and fork beside a plain copy and a plain write of the same bytes.

    python -m bench.state [--json] [--folder FOLDER]

Ours is measured in turn with what it is compared with; rows have the medians and their ratio. Forks
come first: memory that a copy of the whole has used once is cheaper to get again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.exir import to_edge
from torch import Tensor, nn

import pte_arenas as pa
from pte_arenas.runtime import Program, Session, load_program

MIB = 1 << 20
PAGE = 4096


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        ours: Median, in seconds.
        stock: Median of what it is compared with, in seconds.
        goal: Largest ratio that is good.
    """

    what: str
    compared_with: str
    ours: float
    stock: float
    goal: float

    @property
    def ratio(self) -> float:
        return self.ours / self.stock


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


def in_turn(ours: Callable[[], Any], stock: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Medians of both, each after one round that does not count."""
    times = [(seconds(ours), seconds(stock)) for _ in range(rounds + 1)][1:]
    first, second = zip(*times, strict=True)
    return statistics.median(first), statistics.median(second)


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
    times: dict[str, list[float]] = {}
    touched = nbytes // PAGE // 16
    for name, step in (("scattered", 16), ("contiguous", 1)):
        for _ in range(rounds):
            session = program.session()
            touch(session, 0, touched, step)
            times.setdefault(name, []).append(seconds(session.fork))
            for number in ("first", "second", "third"):
                forked: list[Session] = []
                label = f"{name}, copy-on-write, {number}"
                times.setdefault(label, []).append(
                    seconds(lambda: forked.append(session.fork(copy_on_write=True)))  # noqa: B023
                )
                touch(session, 0, 256, step)
                touch(forked[0], 0, 1, step)
    # Only now, see above.
    source = cache(program.session())
    source.fill_(1)
    whole = statistics.median([seconds(lambda: copied(source)) for _ in range(3)])
    warm = torch.empty_like(source)
    warm.copy_(source)
    again = statistics.median([seconds(lambda: warm.copy_(source)) for _ in range(3)])
    for label, found in times.items():
        goal = 0.02 if label.endswith(("second", "third")) else 0.1
        what = f"fork {nbytes // MIB} MiB, {touched * PAGE // MIB} MiB written, {label}"
        ours = statistics.median(found)
        rows.append(Row(what, "memcpy of all to new memory", ours, whole, goal))
        rows.append(Row(what, "memcpy of all to warm memory", ours, again, goal))
    return rows


def snapshot_rows(session: Session, rounds: int) -> list[Row]:
    """All pages written; the copy goes to memory that was used before."""
    source = cache(session)
    target = source.clone()
    reused = session.snapshot()
    size = f"{source.numel() // MIB} MiB"
    copy = lambda: target.copy_(source)  # noqa: E731
    return [
        Row(f"{name} {size}", "memcpy to warm memory", *in_turn(ours, copy, rounds), 1.2)
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
    ours, stock = in_turn(
        lambda: session.save(folder / "ours.safetensors"),
        lambda: raw_write(source, folder / "stock"),
        rounds,
    )
    return [Row(f"save {source.numel() // MIB} MiB", "write, fsync, rename", ours, stock, 1.1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", type=Path, help="where to save; the disk matters")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes, to try it")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = fork_rows(
        program_of(1024 * MIB // options.scale), 1024 * MIB // options.scale, options.rounds
    )
    session = program_of(256 * MIB // options.scale).session()
    cache(session).random_()
    rows += snapshot_rows(session, options.rounds)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows += save_rows(session, Path(folder), options.rounds)
    if options.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1))
        return
    print(f"{'ours':>10} {'stock':>10} {'ratio':>7} {'goal':>6}")
    for row in rows:
        print(
            f"{row.ours * 1e3:7.2f} ms {row.stock * 1e3:7.2f} ms {row.ratio:7.4f} {row.goal:6} "
            f" {row.what}: {row.compared_with}"
        )


if __name__ == "__main__":
    main()
