"""What contradicts that methods share a memory: tiny programs, each with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus import device, value, write
from hypothesis import given
from hypothesis import strategies as st

import pte_arenas as pa
from pte_arenas.layout import BoundTensor
from pte_arenas.merge import StateTensor, merge_slots, slots_of
from pte_arenas.wire.DataSegment import DataSegmentT
from pte_arenas.wire.ExecutionPlan import ExecutionPlanT
from pte_arenas.wire.ExtraTensorInfo import ExtraTensorInfoT
from pte_arenas.wire.Program import ProgramT
from pte_arenas.wire.ScalarType import ScalarType
from pte_arenas.wire.SubsegmentOffsets import SubsegmentOffsetsT
from pte_arenas.wire.TensorDataLocation import TensorDataLocation

WAY_OUT = "; where methods do not share the memory, export again with pte_arenas.export"
Change = Callable[[ProgramT], None]


def shared_program() -> ProgramT:
    """`write` and `read` over a [2, 4] float at byte 0 and a [3] int64 at byte 32."""
    return ProgramT(
        executionPlan=[
            ExecutionPlanT(
                name="write",
                values=[
                    value([2], memory_id=1),
                    value([2, 4], memory_id=2, data_buffer_idx=1),
                    value([3], ScalarType.LONG, memory_id=2, offset=32),
                    value([8], memory_id=2),
                ],
                inputs=[0],
                nonConstBufferSizes=[0, 64, 64],
            ),
            ExecutionPlanT(
                name="read",
                values=[
                    value([2, 4], memory_id=2, data_buffer_idx=2),
                    value([3], ScalarType.LONG, memory_id=2, offset=32),
                    value([2], memory_id=2, offset=16),
                ],
                nonConstBufferSizes=[0, 8, 64],
            ),
            ExecutionPlanT(name="pure", nonConstBufferSizes=[0, 8]),
        ],
        segments=[DataSegmentT(0, 80)],
        mutableDataSegments=[SubsegmentOffsetsT(0, [0, 0, 32])],
    )


def tensor(program: ProgramT, plan: int, index: int) -> Any:
    return program.executionPlan[plan].values[index].val


def named(name: str | bytes, plan: int, index: int) -> Change:
    def change(program: ProgramT) -> None:
        tensor(program, plan, index).extraTensorInfo = ExtraTensorInfoT(fullyQualifiedName=name)

    return change


def put(plan: int, index: int, **kind: Any) -> Change:
    """Replaces a value."""

    def change(program: ProgramT) -> None:
        program.executionPlan[plan].values[index] = value(**{"memory_id": 2, **kind})

    return change


def both(*changes: Change) -> Change:
    def change(program: ProgramT) -> None:
        for each in changes:
            each(program)

    return change


def with_inputs(program: ProgramT) -> None:
    program.executionPlan[0].inputs = [0, 2]


def external(program: ProgramT) -> None:
    tensor(program, 1, 1).extraTensorInfo = ExtraTensorInfoT(
        fullyQualifiedName="steps", location=TensorDataLocation.EXTERNAL
    )


def other_list(program: ProgramT) -> None:
    tensor(program, 0, 1).extraTensorInfo = ExtraTensorInfoT(mutableDataSegmentsIdx=1)


def other_size(program: ProgramT) -> None:
    program.executionPlan[1].nonConstBufferSizes[2] = 96


def no_size(program: ProgramT) -> None:
    program.executionPlan[1].nonConstBufferSizes[2] = 0


def on_device(*plans: int, kind: int = 1) -> Change:
    def change(program: ProgramT) -> None:
        for plan in plans:
            program.executionPlan[plan].nonConstBufferDevice = [device(2, kind)]

    return change


def dim_order(program: ProgramT) -> None:
    tensor(program, 1, 0).dimOrder = [1, 0]


def index_of(plan: int, index: int, data_buffer_idx: int) -> Change:
    def change(program: ProgramT) -> None:
        tensor(program, plan, index).dataBufferIdx = data_buffer_idx

    return change


def refused(name: str, change: Change, message: str) -> Any:
    """A row of a table of refusals."""
    return pytest.param(change, message, id=name)


SAME = bytes(range(32)) * 2 + bytes(16)
DIFFERENT = bytes(range(80))
WRITE, READ = "execution_plan[0].values", "execution_plan[1].values"

REFUSED = [
    refused(
        "sizes of the memory",
        other_size,
        "execution_plan[1].non_const_buffer_sizes[2]: expected the 64 bytes of execution_plan[0] "
        f"but found 96{WAY_OUT}",
    ),
    refused(
        "no memory in one method",
        no_size,
        "execution_plan[1].non_const_buffer_sizes[2]: expected the 64 bytes of execution_plan[0] "
        f"but found 0{WAY_OUT}",
    ),
    refused(
        "devices",
        on_device(1),
        "execution_plan[1].non_const_buffer_device: expected memory id 2 on cpu:0 as in "
        f"execution_plan[0] but found cuda:0{WAY_OUT}",
    ),
    refused(
        "unknown device",
        on_device(0, 1, kind=7),
        "execution_plan[0].non_const_buffer_device: expected cpu or cuda for memory id 2 but found "
        "device type 7; this version of pte-arenas knows no other",
    ),
    refused(
        "input of a method",
        with_inputs,
        f"{WRITE}[2]: expected state but found input 1 of method 'write'{WAY_OUT}",
    ),
    refused(
        "overlap in a method",
        put(0, 3, sizes=[4], offset=24),
        f"{WRITE}[3]: expected the bytes [0, 32) of {WRITE}[1] or bytes apart but found "
        f"[24, 40){WAY_OUT}",
    ),
    refused(
        "overlap between methods",
        both(put(1, 0, sizes=[8], offset=16), put(1, 1, sizes=[1], offset=56)),
        f"{READ}[0]: expected the bytes [0, 32) of {WRITE}[1] or bytes apart but found "
        f"[16, 48){WAY_OUT}",
    ),
    refused(
        "smaller in another method",
        both(put(1, 0, sizes=[2, 2]), put(1, 2, sizes=[1])),
        f"{READ}[0]: expected the bytes [0, 32) of {WRITE}[1] or bytes apart but found "
        f"[0, 16){WAY_OUT}",
    ),
    refused(
        "dtypes",
        put(1, 1, sizes=[6], scalar_type=ScalarType.INT, offset=32),
        f"{READ}[1]: expected int64 [3] as in {WRITE}[2] but found int32 [6]{WAY_OUT}",
    ),
    refused(
        "shapes",
        put(1, 0, sizes=[4, 2]),
        f"{READ}[0]: expected float32 [2, 4] as in {WRITE}[1] but found float32 [4, 2]{WAY_OUT}",
    ),
    refused(
        "dim orders",
        dim_order,
        f"{READ}[0]: expected float32 [2, 4] in dim order [0, 1] as in {WRITE}[1] but found "
        f"float32 [2, 4] in dim order [1, 0]{WAY_OUT}",
    ),
    refused(
        "names",
        both(named("k", 0, 1), named("v", 1, 0)),
        f"{READ}[0]: expected the name 'k' as in {WRITE}[1] but found 'v'{WAY_OUT}",
    ),
    refused(
        "one name at two places",
        both(named("k", 0, 1), named("k", 1, 1)),
        f"{READ}[1]: expected 'k' at [0, 32) as in {WRITE}[1] but found it at [32, 56){WAY_OUT}",
    ),
    refused(
        "initial values",
        index_of(1, 0, 2),
        f"{READ}[0].data_buffer_idx: expected the initial value of {WRITE}[1] but found other "
        f"bytes at index 2{WAY_OUT}",
    ),
    refused(
        "initial value of a part",
        index_of(1, 2, 1),
        f"{READ}[2].data_buffer_idx: expected no initial value for a part of {WRITE}[1] but found "
        f"1{WAY_OUT}",
    ),
    refused(
        "external data",
        external,
        f"{READ}[1].extra_tensor_info.location: expected initial values inside the program but "
        "found them in a data file under 'steps'; export without external_mutable_weights "
        "and external_constants",
    ),
    refused(
        "another list of segments",
        other_list,
        f"{WRITE}[1].extra_tensor_info.mutable_data_segments_idx: expected 0, where arenas have "
        "their initial values, but found 1; export again with pte_arenas.export",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_contradictions(tmp_path: Path, change: Change, message: str) -> None:
    program = shared_program()
    change(program)
    with pytest.raises(pa.ArenaError) as caught:
        pa.adopt(write(program, DIFFERENT if "other bytes" in message else SAME), tmp_path / "x")
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


def negative_size(program: ProgramT) -> None:
    for plan in program.executionPlan[:2]:
        plan.nonConstBufferSizes[2] = -64


BROKEN = [
    refused(
        "size of the memory",
        negative_size,
        "execution_plan[0].non_const_buffer_sizes[2]: expected at least 0 but found -64",
    ),
    refused(
        "no such value",
        index_of(1, 0, 9),
        f"{READ}[0].data_buffer_idx: expected an index below 3 but found 9",
    ),
    refused(
        "value behind the segment",
        both(put(0, 1, sizes=[64]), index_of(0, 1, 2)),
        f"{WRITE}[1].data_buffer_idx: expected bytes [32, 288) inside the initial data of 80 bytes",
    ),
    refused(
        "scalar type",
        put(1, 0, sizes=[8], scalar_type=99),
        f"{READ}[0].scalar_type: expected a known scalar type but found 99",
    ),
    refused(
        "negative size",
        put(1, 1, sizes=[-1]),
        f"{READ}[1].sizes[0]: expected at least 0 but found -1",
    ),
    refused(
        "behind the memory",
        both(put(0, 2, sizes=[3], offset=56), put(1, 1, sizes=[3], offset=56)),
        "arenas[0].slots[1]: expected bytes [56, 68) inside the arena of 64 bytes",
    ),
    refused(
        "name",
        named(b"\xff", 0, 1),
        "program: expected a well-formed ExecuTorch program but found damaged or truncated data",
    ),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_broken_files(tmp_path: Path, change: Change, message: str) -> None:
    program = shared_program()
    change(program)
    with pytest.raises(pa.InvalidProgramError) as caught:
        pa.adopt(write(program, SAME), tmp_path / "x")
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


OPTIONAL = (
    "require_arenas=False: expected memory id 2 on the CPU, which runtimes without arenas can"
)


def test_only_memory_id_2_may_be_shared_elsewhere(tmp_path: Path) -> None:
    program = shared_program()
    for plan in program.executionPlan[:2]:
        plan.nonConstBufferSizes.append(8)
        plan.values.append(value([2], memory_id=3))
    with pytest.raises(pa.ArenaError) as caught:
        pa.adopt(write(program, SAME), tmp_path / "x", memory_id=3, require_arenas=False)
    assert str(caught.value) == (
        f"{OPTIONAL} share, but found 3 on cpu:0; keep require_arenas=True"
    )
    on_device(0, 1)(program)
    with pytest.raises(pa.ArenaError) as caught:
        pa.adopt(write(program, SAME), tmp_path / "x", require_arenas=False)
    assert str(caught.value) == (
        f"{OPTIONAL} share, but found 2 on cuda:0; keep require_arenas=True"
    )


@pytest.mark.parametrize("require_arenas", [True, False])
def test_the_program_itself_is_adopted(tmp_path: Path, *, require_arenas: bool) -> None:
    """Else the refusals above would show nothing."""
    layout = pa.adopt(write(shared_program(), SAME), tmp_path / "x", require_arenas=require_arenas)
    (arena,) = layout.arenas
    assert [(s.fqn, s.offset, s.nbytes, s.data_buffer_idx) for s in arena.slots] == [
        ("slot_0", 0, 32, 1),
        ("slot_1", 32, 24, 0),
    ]
    kept = [] if require_arenas else [1, 2]
    sizes = [[buffer.size for buffer in method.planned_buffers] for method in layout.methods]
    assert sizes == [[64, 64 if kept else 0], [8, 64 if kept else 0], [8]]
    bound = [t for method in layout.methods for b in method.bindings for t in b.tensors]
    assert [t.data_buffer_idx for t in bound if t.data_buffer_idx] == kept


def test_device_memory_becomes_a_device_arena(tmp_path: Path) -> None:
    program = shared_program()
    on_device(0, 1)(program)
    (arena,) = pa.adopt(write(program, SAME), tmp_path / "x").arenas
    assert (arena.device_type, arena.device_index) == ("cuda", 0)


def test_made_up_names_stay_apart_from_real_ones(tmp_path: Path) -> None:
    program = shared_program()
    named("slot_0", 0, 2)(program)
    (arena,) = pa.adopt(write(program, SAME), tmp_path / "x").arenas
    assert [slot.fqn for slot in arena.slots] == ["slot_0_", "slot_0"]


def test_no_slot_for_an_empty_tensor_at_the_border_of_another(tmp_path: Path) -> None:
    program = shared_program()
    for plan in program.executionPlan[:2]:
        plan.values += [value([0], memory_id=2, offset=32), value([0, 3], memory_id=2, offset=60)]
    (arena,) = pa.adopt(write(program, SAME), tmp_path / "x").arenas
    assert [(slot.offset, slot.nbytes) for slot in arena.slots] == [(0, 32), (32, 24), (60, 0)]


@st.composite
def slots_and_methods(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[StateTensor]]]:
    """Disjoint ranges of whole floats, and methods with the ranges and views of them."""
    ends = sorted(draw(st.sets(st.integers(1, 40), min_size=2, max_size=12)))
    ranges = list(zip(ends[::2], ends[1::2], strict=False))
    methods, used = [], set()
    for m in range(draw(st.integers(1, 4))):
        tensors: list[StateTensor] = []
        for begin, end in draw(st.lists(st.sampled_from(ranges), unique=True)):
            used.add((begin, end))
            views = draw(st.lists(st.tuples(*[st.integers(begin, end)] * 2), max_size=3))
            for first, last in [(begin, end), *(sorted(view) for view in views)]:
                layout = BoundTensor(
                    value=len(tensors),
                    dtype="float32",
                    sizes=(last - first,),
                    offset=4 * first,
                    nbytes=4 * (last - first),
                )
                tensors.append(StateTensor(f"{m}.{len(tensors)}", layout, (0,)))
        methods.append(tensors)
    return sorted(used), methods


@given(slots_and_methods())
def test_merging_finds_the_buffers(case: Any) -> None:
    ranges, methods = case
    slots = merge_slots(methods, lambda one, other, nbytes: True)
    assert [(slot.offset // 4, slot.end // 4) for slot in slots] == ranges
    for tensors in methods:
        touched = slots_of(tensors, slots)
        for tensor_ in tensors:
            holders = [i for i in touched if slots[i].offset <= tensor_.begin <= slots[i].end]
            assert any(tensor_.end <= slots[i].end for i in holders)
