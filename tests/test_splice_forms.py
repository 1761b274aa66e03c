"""Splicing: forms of programs that stock exir does not write, what is refused, what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import compose
import flatbuffers
import pytest
from splice_values import (
    ARENAS,
    BINDINGS,
    SLOTS,
    UNINITIALISED,
    header_of,
    packed,
    plan,
    with_header,
)

from pte_arenas.errors import ArenaError, InvalidProgramError
from pte_arenas.frame import read_header
from pte_arenas.layout import AccessMode, ArenaBinding, ArenaLayout, SlotAccess
from pte_arenas.read import read_layout
from pte_arenas.splice import _PLAN_FIELDS, _PROGRAM_FIELDS, splice, splice_program
from pte_arenas.wire.Chain import ChainT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.Instruction import InstructionT
from pte_arenas.wire.InstructionArguments import InstructionArguments
from pte_arenas.wire.KernelCall import KernelCallT
from pte_arenas.wire.Program import Program, ProgramT


def test_program_without_segments_has_no_header() -> None:
    old = packed(ProgramT(executionPlan=[plan("forward", inputs=[1]), plan("other")]))
    (new,) = splice_program([old], ARENAS, BINDINGS, required_features=("a", "b"))
    assert read_header(new) is None
    assert new == splice(old, ARENAS, BINDINGS, required_features=("a", "b"))
    program = Program.GetRootAs(new)
    assert program.ExecutionPlan(0).InputsAsNumpy().tolist() == [1]
    assert program.ExecutionPlan(1).ArenaBindings(0).MemoryId() == 3
    table = program.ProgramArenas()
    assert [table.RequiredFeatures(i) for i in range(table.RequiredFeaturesLength())] == [
        b"a",
        b"b",
    ]


def test_layout_is_read_back() -> None:
    arenas = (
        ArenaLayout(name="state", size=41, alignment=8, slots=(SLOTS[0], UNINITIALISED)),
        ArenaLayout(name="other", size=0, device_type="cuda", device_index=3),
        ArenaLayout(name="scratch", size=1 << 40, lifetime="scratch"),
    )
    bindings = (
        ArenaBinding(memory_id=3, arena=2),
        ArenaBinding(memory_id=2, arena=0, accesses=BINDINGS["forward"][1].accesses),
    )
    sizes = [0, 64, 0, 1 << 40]
    old = packed(
        ProgramT(
            executionPlan=[plan("other"), ExecutionPlanT("forward", nonConstBufferSizes=sizes)]
        )
    )
    layout = read_layout(splice(old, arenas, {"forward": bindings}))
    assert layout.arenas == arenas
    assert [method.name for method in layout.methods] == ["other", "forward"]
    assert [method.bindings for method in layout.methods] == [(), bindings]


def test_version_is_kept() -> None:
    old = packed(ProgramT(version=3, executionPlan=[plan("forward")]))
    assert Program.GetRootAs(splice(old, ARENAS, {})).Version() == 3


def test_foreign_chunks_behind_the_program_are_passed_on() -> None:
    class FileBacked:
        def __len__(self) -> int:
            return 100

    file_backed = FileBacked()
    head = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=512, size=101)
    chunks: list[bytes | FileBacked] = [head, bytes(512 - len(head)), file_backed, b"x"]
    result = splice_program(chunks, ARENAS, {})
    assert result[-2] is file_backed
    assert isinstance(result[0], bytes)
    assert sum(map(len, result[:-2])) == header_of(result[0]).segment_base_offset


def test_header_without_the_size_of_the_segments() -> None:
    old = with_header(packed(ProgramT(executionPlan=[plan("forward")])), 512, size=99, length=24)
    assert header_of(splice(old, ARENAS, {})).segment_data_size == 0


def test_header_without_segments() -> None:
    old = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=0, size=0)
    (new,) = splice_program([old], ARENAS, {})
    assert header_of(new) == (len(new), 0, 0)


def with_field(field: int, where: str) -> bytes:
    """A program whose root or plan has a field with this id."""
    builder = flatbuffers.Builder()
    name = builder.CreateString("forward")
    builder.StartObject(field + 1 if where == "plan" else 1)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    if where == "plan":
        builder.PrependUint32Slot(field, 1, 0)
    plans = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(plans)
    vector = builder.EndVector()
    builder.StartObject(field + 1 if where == "root" else 2)
    builder.PrependUOffsetTRelativeSlot(1, vector, 0)
    if where == "root":
        builder.PrependUint32Slot(field, 1, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"ET12")
    return bytes(builder.Output())


def later(where: str, known: int, field: int) -> str:
    return (
        f"{where}: expected the {known} fields of ExecuTorch 1.5.1 but found a field with id "
        f"{field}; use a version of pte-arenas for the ExecuTorch that wrote the program"
    )


@pytest.mark.parametrize(
    ("field", "where", "message"),
    [
        (8, "root", later("program", 8, 8)),
        (129, "root", later("program", 8, 129)),
        (128, "root", "program: expected a program without arenas but found some"),
        (10, "plan", later("execution_plan[0]", 10, 10)),
        (128, "plan", "execution_plan[0]: expected a program without arenas but found some"),
    ],
)
def test_refuses_fields_that_would_get_lost(field: int, where: str, message: str) -> None:
    with pytest.raises(ArenaError) as refusal:
        splice(with_field(field, where), ARENAS, {})
    assert str(refusal.value) == message


def test_known_fields_are_those_of_the_installed_executorch() -> None:
    upstream = compose.read_upstream(compose.installed_schema() / "program.fbs")
    composed = compose.compose(upstream, compose.read_extension(), "n")
    for table, known in (("Program", _PROGRAM_FIELDS), ("ExecutionPlan", _PLAN_FIELDS)):
        body = composed.partition(f"table {table} ")[2].partition("}")[0]
        assert body.count(";") - body.count("deprecated") == known + 1
        assert f"(id: {known}, deprecated)" in body


def test_refuses_an_unknown_method() -> None:
    old = packed(ProgramT(executionPlan=[plan("encode"), plan("decode")]))
    with pytest.raises(ArenaError) as refusal:
        splice(old, ARENAS, {"encode": (), **BINDINGS})
    assert str(refusal.value) == (
        "bindings: expected methods of the program (encode, decode) but found 'forward', 'other'"
    )


DAMAGED = "program: expected a well-formed ExecuTorch program but found damaged or truncated data"
WHOLE = with_header(packed(ProgramT(executionPlan=[plan("forward")])), base=512, size=1)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing"),
        pytest.param([b""], id="empty"),
        pytest.param([b"PK\3\4" * 20], id="another-format"),
        pytest.param([WHOLE[:-1]], id="truncated"),
        pytest.param([WHOLE], id="without-segments"),
        pytest.param([range(100), b""], id="not-bytes"),
    ],
)
def test_refuses_what_is_not_a_program(chunks: list[Any]) -> None:
    with pytest.raises(InvalidProgramError) as refusal:
        splice_program(chunks, ARENAS, {})
    assert str(refusal.value) == DAMAGED


def test_refuses_a_truncated_head() -> None:
    with pytest.raises(InvalidProgramError) as refusal:
        splice(WHOLE[:-1], ARENAS, {})
    assert str(refusal.value) == DAMAGED


def seconds(function: Callable[[], object]) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def test_instructions_cost_nothing() -> None:
    call = InstructionT(InstructionArguments.KernelCall, KernelCallT(opIndex=0, args=[1, 2, 3, 4]))
    program = packed(
        ProgramT(executionPlan=[plan("forward", chains=[ChainT(instructions=[call] * 10_000)])])
    )
    assert seconds(lambda: splice(program, ARENAS, {"forward": BINDINGS["forward"]})) < 0.01


MODES: tuple[AccessMode, ...] = ("read", "write", "read_write")


def test_many_methods_and_slots() -> None:
    program = packed(ProgramT(executionPlan=[plan(f"m{i}") for i in range(64)]))
    slots = [SLOTS[0].model_copy(update={"fqn": f"layers.{i}.k"}) for i in range(1000)]
    arenas = [ARENAS[0].model_copy(update={"slots": tuple(slots)})]
    bindings = {}
    for method in range(64):
        accesses = tuple(
            SlotAccess(slot=slot, mode=MODES[(slot + method) % 3]) for slot in range(1000)
        )
        bindings[f"m{method}"] = (ArenaBinding(memory_id=1, arena=0, accesses=accesses),)
    assert seconds(lambda: splice(program, arenas, bindings)) < 1
    found = Program.GetRootAs(splice(program, arenas, bindings)).ExecutionPlan(63).ArenaBindings(0)
    assert [found.Accesses(i).Mode() for i in range(4)] == [0, 1, 2, 0]
