"""What differs between two layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import Changes, device, file_with, slot
from hypothesis import HealthCheck, given, settings
from test_layout import layouts

import pte_arenas as pa
from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.ScalarType import ScalarType
from pte_arenas.wire.SlotAccess import SlotAccessT

GOLDEN = Path(__file__).parent / "golden"

CACHE = "arenas[0].slots[0]"
SLOT = slot("cache", [4, 4], nbytes=64, data_buffer_idx=1)
STEPS = slot("steps", [], ScalarType.LONG, offset=64, nbytes=8)

# Of the sound program: where, field, before, after; saved states fit.
LAYOUT_ONLY = {
    "alignment": ({"arenas[0].alignment": 128}, ("arena 'state'", "alignment", 64, 128)),
    "arena size": (
        {"arenas[1].size": 64},
        ("program", "planned bytes", 256, 288),
        ("arena 'scratch'", "size", 32, 64),
    ),
    "arena name": (
        {"arenas[1].name": "tmp"},
        ("arena 'scratch'", "", 32, None),
        ("arena 'tmp'", "", None, 32),
        ("method 'step'", "arena 'scratch'", "memory id 3", None),
        ("method 'step'", "bytes used of 'scratch'", 28, None),
        ("method 'step'", "arena 'tmp'", None, "memory id 3"),
        ("method 'step'", "bytes used of 'tmp'", None, 28),
    ),
    "device": (
        {
            "arenas[1].deviceType": 1,
            "executionPlan[0].nonConstBufferDevice": [device(3, 1)],
            "executionPlan[0].values": None,
        },
        ("arena 'scratch'", "device", "cpu:0", "cuda:0"),
        ("method 'step'", "bytes used of 'scratch'", 28, 0),
        ("method 'step'", "memory id 3 device", None, "cuda:0"),
    ),
    "slot moved": (
        {"arenas[0].slots[1].offset": 80, "executionPlan[0].values[3].val.allocationInfo": None},
        ("slot 'steps'", "bytes", "[64, 72)", "[80, 88)"),
    ),
    "initial value": (
        {f"{CACHE}.dataBufferIdx": 0},
        ("slot 'cache'", "initial value", "values", "zeros"),
    ),
    "own memory": (
        {"executionPlan[0].nonConstBufferSizes": [0, 256, 0, 0]},
        ("program", "planned bytes", 256, 384),
        ("method 'step'", "planned bytes", 128, 256),
        ("method 'step'", "memory id 1", 128, 256),
    ),
    "required": (
        {"executionPlan[0].nonConstBufferSizes": [0, 128, 96, 32]},
        (
            "program",
            "runtimes without arenas",
            "refuse methods that use arenas",
            "load all methods",
        ),
    ),
    "access": (
        {"executionPlan[1].arenaBindings": [ArenaBindingT(1, 0, [SlotAccessT(0, 1)])]},
        ("method 'peek'", "slot 'cache'", "read", "write"),
    ),
    "new access": (
        {
            "executionPlan[1].arenaBindings": [
                ArenaBindingT(1, 0, [SlotAccessT(0, 0), SlotAccessT(1, 2)])
            ]
        },
        ("method 'peek'", "slot 'steps'", None, "read_write"),
    ),
    "method name": (
        {"executionPlan[1].name": "look"},
        ("method 'peek'", "", 0, None),
        ("method 'look'", "", None, 0),
    ),
}

BREAKS = {
    "dtype": (
        {f"{CACHE}.scalarType": ScalarType.INT},
        ("slot 'cache'", "dtype", "float32", "int32"),
    ),
    "sizes": (
        {f"{CACHE}.sizes": [2, 8]},
        ("slot 'cache'", "sizes", "[4, 4]", "[2, 8]"),
    ),
    "dim order": (
        {f"{CACHE}.dimOrder": [1, 0]},
        ("slot 'cache'", "dim order", "[0, 1]", "[1, 0]"),
    ),
    "added": (
        {"arenas[0].slots": [SLOT, STEPS, slot("more", [4], offset=72, nbytes=16)]},
        ("slot 'more'", "", None, "float32 [4]"),
    ),
    "name": (
        {f"{CACHE}.fullyQualifiedName": "kv"},
        ("slot 'cache'", "", "float32 [4, 4]", None),
        ("slot 'kv'", "", None, "float32 [4, 4]"),
    ),
}


def rows(found: tuple[pa.Difference, ...]) -> list[tuple[object, ...]]:
    return [(each.where, each.field, each.before, each.after) for each in found]


@pytest.mark.parametrize("case", LAYOUT_ONLY.values(), ids=LAYOUT_ONLY.keys())
def test_layout_only(case: tuple[Changes, ...]) -> None:
    changes, *expected = case
    found = pa.diff(file_with({}), file_with(changes))
    assert rows(found) == expected
    assert not any(each.breaks_saved_state for each in found)


@pytest.mark.parametrize("case", BREAKS.values(), ids=BREAKS.keys())
def test_breaks_saved_state(case: tuple[Changes, ...]) -> None:
    changes, *expected = case
    found = pa.diff(file_with({}), file_with(changes))
    assert rows(tuple(each for each in found if each.breaks_saved_state)) == expected


def test_a_program_without_slots_has_no_saved_states() -> None:
    found = pa.diff(GOLDEN / "stock.pte", GOLDEN / "counter.pte")
    assert ("slot 'count'", "", None, "int64 []") in rows(found)
    assert not any(each.breaks_saved_state for each in found)
    found = pa.diff(GOLDEN / "counter.pte", GOLDEN / "stock.pte")
    assert [each.where for each in found if each.breaks_saved_state] == ["slot 'count'"]


def test_sources() -> None:
    path = GOLDEN / "mixed.pte"
    for source in (str(path), path.read_bytes(), pa.read_layout(path)):
        assert pa.diff(path, source) == ()


def test_order_does_not_matter() -> None:
    layout = pa.read_layout(GOLDEN / "mixed.pte")
    turned = layout.model_copy(update={"methods": layout.methods[::-1]})
    assert pa.diff(layout, turned) == ()


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), layouts())
def test_symmetry(one: pa.ProgramLayout, other: pa.ProgramLayout) -> None:
    assert pa.diff(one, one) == ()
    there, back = pa.diff(one, other), pa.diff(other, one)
    assert {(d.where, d.field, d.before, d.after) for d in there} == {
        (d.where, d.field, d.after, d.before) for d in back
    }
