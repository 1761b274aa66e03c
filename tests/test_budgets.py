"""Planned bytes against limits, and sizes as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import Changes, file_with

import pte_arenas as pa
from pte_arenas.sizes import parse_assignment, parse_size

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("512K", 512 << 10),
        ("2M", 2 << 20),
        ("1.5M", 3 << 19),
        ("0.25KiB", 256),
        ("1GiB", 1 << 30),
        (" 3 T ", 3 << 40),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "K", "-1", "512KB", "512k", "1.5", "0.3K", "1e3", "0x10", "1_000", "٣"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(pa.ArenaError, match="expected a whole number of bytes such as 4096, 512K"):
        parse_size(text)


def test_decimal_units_get_a_hint() -> None:
    with pytest.raises(pa.ArenaError, match=r"found '512KB'; K, M, G and T are powers of 1,024"):
        parse_size("512KB")


def test_assignments() -> None:
    assert parse_assignment("arena:a=b = 2K") == ("arena:a=b", "2K")
    for text in ("", "a", "=1", "a=", " = "):
        with pytest.raises(pa.ArenaError, match="expected NAME=VALUE but found"):
            parse_assignment(text)


def planned(name: str, regions: dict[str, list[str]] | None = None) -> int:
    (line,) = pa.check_budget(file_with({}), {name: 0}, regions).lines
    assert sum(part.nbytes for part in line.parts) == line.planned
    return line.planned


# The sound program: state of 96 bytes, scratch of 32, and 128 bytes of `step` on memory id 1.
@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("total", 256),
        ("arena:state", 96),
        ("state", 96),
        ("scratch", 32),
        ("method:step", 128),
        ("step", 128),
        ("peek", 0),
        ("id:1", 128),
        ("id:2", 0),
        ("SRAM", 256),
    ],
)
def test_memories(name: str, nbytes: int) -> None:
    assert planned(name) == nbytes


@pytest.mark.parametrize(
    ("memories", "nbytes"),
    [
        (["arena:state"], 96),
        (["arena:scratch", "id:1"], 160),
        (["id:1", "method:step"], 128),
        (["total", "arena:state"], 256),
    ],
)
def test_regions(memories: list[str], nbytes: int) -> None:
    assert planned("SRAM", {"SRAM": memories}) == nbytes


@pytest.mark.parametrize(
    ("limits", "regions", "sentence"),
    [
        pytest.param(
            ["stat"],
            {},
            "expected a known memory but found 'stat'; did you mean 'state' or 'scratch' or "
            "'arena:state'?",
            id="misspelt",
        ),
        pytest.param(
            ["arena:x"],
            {},
            "expected a known memory but found 'arena:x'; did you mean 'arena:state' or "
            "'arena:scratch'?",
            id="arena",
        ),
        pytest.param(
            ["id:7"],
            {},
            "expected a known memory but found 'id:7'; did you mean 'id:3' or 'id:2' or 'id:1'?",
            id="memory-id",
        ),
        pytest.param(
            ["SRAM", "DRAM"],
            {},
            "expected at most one name for the whole program but found 'SRAM' and 'DRAM'; say what "
            "lies in each with --region SRAM=arena:NAME,method:NAME,id:N",
            id="two-wholes",
        ),
        pytest.param(
            ["QQ"],
            {"SRAM": ["id:1"]},
            "expected a known memory but found 'QQ'; there are 'SRAM', 'arena:scratch', "
            "'arena:state', 'id:1', 'id:2', 'id:3', 'method:peek', 'method:step' and 5 more",
            id="beside-regions",
        ),
        pytest.param(
            ["SRAM"],
            {"SRAM": ["state"]},
            "region 'SRAM': expected a known memory but found 'state'; did you mean 'arena:state'?",
            id="bare-name-in-region",
        ),
        pytest.param(
            ["state"],
            {"state": ["id:1"]},
            "expected a new name for a region but found 'state', which the program has",
            id="taken",
        ),
    ],
)
def test_refusals(limits: list[str], regions: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(pa.ArenaError) as caught:
        pa.check_budget(file_with({}), dict.fromkeys(limits, 0), regions)
    assert str(caught.value) == sentence


def test_ambiguous() -> None:
    data = file_with({"executionPlan[0].name": "state"})
    with pytest.raises(pa.ArenaError) as caught:
        pa.check_budget(data, {"state": 0})
    assert str(caught.value) == (
        "expected one memory but found an arena and a method named 'state'; "
        "say 'arena:state' or 'method:state'"
    )


def report(changes: Changes, limit: int) -> pa.BudgetReport:
    return pa.check_budget(file_with(changes), {"total": limit})


@pytest.mark.parametrize(("limit", "kept"), [(255, False), (256, True), (257, True)])
def test_limits(limit: int, *, kept: bool) -> None:
    assert report({}, limit).kept is kept
    assert report({}, limit).lines[0].excess == 256 - limit


def test_parts() -> None:
    (line,) = report({}, 0).lines
    assert [(part.kind, part.name, part.memory_id, part.nbytes) for part in line.parts] == [
        ("method", "step", 1, 128),
        ("arena", "state", None, 96),
        ("arena", "scratch", None, 32),
    ]
    assert line.parts[1].largest == (
        pa.Occupant(name="cache", nbytes=64),
        pa.Occupant(name="steps", nbytes=8),
    )
    assert line.parts[2].user == "step"


def test_peaks() -> None:
    (line,) = pa.check_budget(GOLDEN / "mixed.pte", {"push": 0}).lines
    (part,) = line.parts
    assert (part.nbytes, part.peak, part.at) == (112, 51, "6 aten::sum.IntList_out")
    assert part.largest[0] == pa.Occupant(
        name="activation 20, made by 5 dim_order_ops::_to_dim_order_copy.out", nbytes=24
    )


def test_json_round_trip() -> None:
    found = report({}, 0)
    assert pa.BudgetReport.model_validate_json(found.model_dump_json()) == found
