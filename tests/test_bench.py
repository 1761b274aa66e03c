"""The measurements run and say what they compare; how fast things are is for `make bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench import calls, emit_overhead, sessions, state
from bench.rows import Row, as_json, show, upper_bound


def check(rows: list[Row]) -> None:
    assert all(row.stock > 0 and row.ours > 0 and row.what and row.against for row in rows)


def test_calls() -> None:
    rows = calls.measure(turns=1)
    check(rows)
    assert {row.against for row in rows} == {"executorch.runtime", "ours without arenas"}


def test_state(tmp_path: Path) -> None:
    rows = state.measure(tmp_path, scale=64, rounds=1)
    check(rows)
    assert [row.what for row in rows][-3:] == [
        "snapshot, memory reused, 4 MiB",
        "restore 4 MiB",
        "save 4 MiB",
    ]


def test_sessions(tmp_path: Path) -> None:
    for way, start in sessions.WAYS.items():
        path = tmp_path / f"{way}.pte"
        sessions.write(path, xnnpack=False, arena=way == "sessions")
        assert len(start(path, 2)) == 2
    assert sessions.resident() > 1 << 20


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("arenas", [False, True])
def test_emitting(arenas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_overhead, "INSTRUCTIONS", 100)
    found = emit_overhead.measure_here("instructions", arenas=arenas)
    assert 0 <= found["added"] < found["total"] and found["peak"] > 0


# --- What is made of them ---


def row(ratio: float, *, goal: float | None = None, bound: float | None = None) -> Row:
    return Row("call", "stock", 2.0, 2.0 * ratio, goal=goal, bound=bound)


@pytest.mark.parametrize(
    ("ratio", "goal", "bound", "met"),
    [
        (2.0, None, None, True),
        (0.5, 0.5, None, True),
        (0.6, 0.5, None, False),
        (0.4, 0.5, 0.45, True),
        (0.4, 0.5, 0.55, False),
    ],
)
def test_goals(ratio: float, goal: float | None, bound: float | None, met: bool) -> None:
    assert row(ratio, goal=goal, bound=bound).met is met


def test_bound_holds_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    turns = torch.rand(4000, 8, generator=generator).exp()  # the median is exp(0.5)
    bounds = [upper_bound(each) for each in turns.tolist()]
    assert all(bound in each for bound, each in zip(bounds, turns.tolist(), strict=True))
    above = sum(bound is not None and bound >= torch.tensor(0.5).exp() for bound in bounds)
    assert 0.95 <= above / 4000 < 0.98  # 1 - 9 / 256 of them


@pytest.mark.parametrize(
    ("ratios", "bound"), [([1, 2, 3, 4], None), (range(5), 4), (range(8), 6), (range(11), 8)]
)
def test_bound(ratios: list[float], bound: float | None) -> None:
    assert upper_bound(ratios) == bound


def test_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(0.25, goal=0.5, bound=0.3),
        Row("token", "stock", 0.05, 0.02, "s/token", spread=(0.3, 0.5)),
        Row("file", "stock", 2e6, 1e6, "B"),
    ]
    show(rows, title="title")
    shown = capsys.readouterr().out
    for text in ("title", "0.25", "0.3", "≤ 0.5", "20 ms, 50/s", "0.3 to 0.5", "2 MB", "1 MB"):
        assert text in shown
    assert [each["ratio"] for each in json.loads(as_json(rows))] == [0.25, 0.02 / 0.05, 0.5]
