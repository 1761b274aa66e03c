"""Layouts as values: what they refuse, JSON both ways, and sums."""

from __future__ import annotations

import json
from typing import Any

import pytest
from corpus import Changes, changed, file_with, write
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from refused_arenas import ARENAS, SLOTS
from refused_plans import BINDINGS, ENDS, TENSORS

import pte_arenas as pa
from pte_arenas import read
from pte_arenas.dtypes import DTYPES
from pte_arenas.plan import Block, plan_arena
from pte_arenas.wire.Program import Program

MODES = st.sampled_from(["read", "write", "read_write"])
NAMES = st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True)


@st.composite
def slot_sets(draw: st.DrawFn, names: list[str]) -> tuple[pa.ArenaSlot, ...]:
    dtypes = [DTYPES[draw(st.sampled_from(sorted(DTYPES)))] for _ in names]
    shapes = [draw(st.lists(st.integers(0, 9), max_size=4)) for _ in names]
    tensors = []
    for name, dtype, shape in zip(names, dtypes, shapes, strict=True):
        nbytes = dtype.width
        for size in shape:
            nbytes *= size
        tensors.append(Block(name, nbytes, dtype.width))
    plan = plan_arena("any", tensors)
    return tuple(
        pa.ArenaSlot(
            fqn=block.name,
            dtype=dtype.name,
            sizes=tuple(shape),
            dim_order=tuple(draw(st.permutations(range(len(shape))))),
            offset=offset,
            nbytes=block.nbytes,
        )
        for block, dtype, shape, offset in zip(tensors, dtypes, shapes, plan.offsets, strict=True)
    )


@st.composite
def methods(draw: st.DrawFn, arena: pa.ArenaLayout) -> pa.MethodLayout:
    bound = pa.PlannedBuffer(size=draw(st.sampled_from([0, arena.size])))
    own = [pa.PlannedBuffer(size=size) for size in draw(st.lists(st.integers(0, 2**40)))]
    used = draw(st.lists(st.sampled_from(range(len(arena.slots))), unique=True))
    binding = pa.ArenaBinding(
        memory_id=len(own) + 1,
        arena=0,
        accesses=tuple(pa.SlotAccess(slot=s, mode=draw(MODES)) for s in used),
        tensors=tuple(
            pa.BoundTensor(
                value=v, dtype=slot.dtype, sizes=slot.sizes, offset=slot.offset, nbytes=slot.nbytes
            )
            for v, slot in enumerate(arena.slots[s] for s in used)
        ),
    )
    return pa.MethodLayout(name=draw(st.text()), planned_buffers=(*own, bound), bindings=(binding,))


@st.composite
def layouts(draw: st.DrawFn) -> pa.ProgramLayout:
    slots = draw(slot_sets(draw(NAMES)))
    arena = pa.ArenaLayout(name=draw(st.text(min_size=1)), size=slots[-1].end, slots=slots)
    return pa.ProgramLayout(arenas=(arena,), methods=tuple(draw(st.lists(methods(arena)))))


@settings(deadline=None)  # a busy machine is no fault of the layout's
@given(layouts())
def test_json_round_trip(layout: pa.ProgramLayout) -> None:
    text = layout.model_dump_json()
    assert pa.ProgramLayout.model_validate_json(text) == layout
    assert pa.ProgramLayout.model_validate_json(json.dumps(json.loads(text))) == layout
    assert pa.ProgramLayout.model_validate(layout.model_dump()) == layout
    assert len({layout, pa.ProgramLayout.model_validate_json(text)}) == 1


# A number in place of a word, and a tensor's bytes computed from impossible sizes.
REFUSED_BY_TYPE = {"literal_error", "string_type", "less_than", "greater_than_equal"}


@pytest.mark.parametrize(
    ("changes", "where", "message"), [*ARENAS, *SLOTS, *BINDINGS, *TENSORS, *ENDS]
)
def test_no_layout_breaks_a_rule(changes: Changes, where: str, message: str) -> None:
    data = write(changed(changes))
    unchecked = read._read_program(Program.GetRootAs(data)).model_dump(warnings=False)
    with pytest.raises(ValidationError) as caught:
        pa.ProgramLayout.model_validate(unchecked)
    errors = caught.value.errors()
    if {error["type"] for error in errors}.isdisjoint(REFUSED_BY_TYPE):
        assert [error["msg"] for error in errors] == [f"Value error, {where}: {message}"]


def test_json_that_breaks_a_rule_names_path_and_sentence() -> None:
    layout = json.loads(pa.read_layout(file_with({})).model_dump_json())
    layout["arenas"][0]["slots"][1]["offset"] = 92
    with pytest.raises(
        ValidationError, match=r"arenas\[0\].slots\[1\].offset: expected a multiple"
    ):
        pa.ProgramLayout.model_validate_json(json.dumps(layout))


SLOT: dict[str, Any] = {"fqn": "k", "dtype": "int8", "sizes": (3,), "offset": 0, "nbytes": 3}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param({"offset": "0"}, "int_type", id="string"),
        pytest.param({"offset": 0.0}, "int_type", id="float"),
        pytest.param({"nbytes": True}, "int_type", id="bool"),
        pytest.param({"sizes": [3]}, "tuple_type", id="list"),
        pytest.param({"offset": -1}, "greater_than_equal", id="negative"),
        pytest.param({"offset": 2**64}, "less_than", id="65-bits"),
        pytest.param({"sizes": (2**31,)}, "less_than", id="size-of-32-bits"),
        pytest.param({"fqn": b"k"}, "string_type", id="bytes"),
        pytest.param({"fqn": "\ud800"}, "value_error", id="surrogate"),
        pytest.param({"shape": (3,)}, "extra_forbidden", id="unknown-field"),
    ],
)
def test_values_are_strict(change: dict[str, Any], kind: str) -> None:
    assert pa.ArenaSlot(**SLOT).end == 3
    with pytest.raises(ValidationError) as caught:
        pa.ArenaSlot(**{**SLOT, **change})
    assert [error["type"] for error in caught.value.errors()] == [kind]


def test_values_are_frozen() -> None:
    slot = pa.ArenaSlot(**SLOT)
    with pytest.raises(ValidationError, match="frozen"):
        slot.offset = 8  # type: ignore[misc]


def test_unknown_dtype() -> None:
    slot = pa.ArenaSlot(**{**SLOT, "dtype": "complex64"})
    arena = pa.ArenaLayout(name="a", size=3, slots=(slot,))
    with pytest.raises(ValidationError) as caught:
        pa.ProgramLayout(arenas=(arena,))
    assert caught.value.errors()[0]["msg"] == (
        "Value error, arenas[0].slots[0].scalar_type: "
        "expected a known scalar type but found 'complex64'"
    )


def test_bound_tensor_bytes() -> None:
    layout = pa.read_layout(file_with({})).model_dump()
    layout["methods"][1]["bindings"][0]["tensors"][0]["nbytes"] = 28
    with pytest.raises(ValidationError) as caught:
        pa.ProgramLayout.model_validate(layout)
    assert caught.value.errors()[0]["msg"] == (
        "Value error, execution_plan[1].values[0].nbytes: "
        "expected 32 for sizes [2, 4] of float32 but found 28"
    )


def test_json_schema_is_closed() -> None:
    schema = pa.ProgramLayout.model_json_schema()
    objects = [schema, *schema["$defs"].values()]
    assert all(each["additionalProperties"] is False for each in objects)
    assert schema["$defs"]["ArenaSlot"]["properties"]["dtype"]["enum"] == list(DTYPES)


def test_lookups() -> None:
    layout = pa.read_layout(file_with({}))
    assert layout.arena("scratch").size == 32
    assert layout.method("peek").bindings[0].memory_id == 1
    assert layout.slot("steps") is layout.arena("state").slot("steps")
    with pytest.raises(pa.ArenaError) as caught:
        layout.slot("step\n")
    assert str(caught.value) == r"expected a known slot but found 'step\n'; did you mean 'steps'?"
    with pytest.raises(pa.ArenaError) as caught:
        layout.arena("scratch").slot("steps")
    assert str(caught.value) == (
        "expected a known slot of arena 'scratch' but found 'steps'; there are none"
    )


def test_planned_bytes() -> None:
    layout = pa.read_layout(file_with({}))
    assert [method.planned_bytes for method in layout.methods] == [128, 0]
    assert layout.planned_bytes == 128 + 96 + 32
    assert layout.unshared_bytes == (128 + 96 + 32) + 96
