"""Lifetimes of planned tensors over a method's instructions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from corpus import file_with, value
from hypothesis import given, settings
from hypothesis import strategies as st

import pte_arenas as pa
from pte_arenas.lifetimes import read_both
from pte_arenas.maps import draw_html, draw_svg
from pte_arenas.peak import find_peak, live_bytes
from pte_arenas.runtime import _C
from pte_arenas.wire.BackendDelegate import BackendDelegateT
from pte_arenas.wire.BackendDelegateDataReference import BackendDelegateDataReferenceT
from pte_arenas.wire.Chain import ChainT
from pte_arenas.wire.DelegateCall import DelegateCallT
from pte_arenas.wire.EValue import EValueT
from pte_arenas.wire.ExtraTensorInfo import ExtraTensorInfoT
from pte_arenas.wire.FreeCall import FreeCallT
from pte_arenas.wire.Instruction import InstructionT
from pte_arenas.wire.InstructionArguments import InstructionArguments as Kind
from pte_arenas.wire.JumpFalseCall import JumpFalseCallT
from pte_arenas.wire.KernelCall import KernelCallT
from pte_arenas.wire.KernelTypes import KernelTypes
from pte_arenas.wire.MoveCall import MoveCallT
from pte_arenas.wire.Operator import OperatorT
from pte_arenas.wire.TensorList import TensorListT

GOLDEN = Path(__file__).parent / "golden"

INPUT, A, B, OUTPUT, LIST, STATE = range(6)


def kernel(*values: int, operator: int = 0) -> InstructionT:
    return InstructionT(Kind.KernelCall, KernelCallT(operator, list(values)))


def delegate(*values: int, index: int = 0) -> InstructionT:
    return InstructionT(Kind.DelegateCall, DelegateCallT(index, list(values)))


def move(source: int, target: int) -> InstructionT:
    return InstructionT(Kind.MoveCall, MoveCallT(source, target))


def jump(condition: int, destination: int) -> InstructionT:
    return InstructionT(Kind.JumpFalseCall, JumpFalseCallT(condition, destination))


def free(v: int) -> InstructionT:
    return InstructionT(Kind.FreeCall, FreeCallT(v))


def program(*chains: Sequence[InstructionT], **changes: Any) -> bytes:
    """The sound program with another method `step`: input, two activations, output, list, state."""
    at = "executionPlan[0]."
    values = [value([4], offset=16 * i) for i in range(4)]
    values += [EValueT(KernelTypes.TensorList, TensorListT([A, B])), value([4, 4], memory_id=2)]
    return file_with(
        {
            f"{at}values": values,
            f"{at}inputs": [INPUT],
            f"{at}outputs": [OUTPUT],
            f"{at}chains": [ChainT(instructions=list(chain)) for chain in chains],
            f"{at}operators": [OperatorT("aten::add", "out"), OperatorT("aten::abs", "")],
            f"{at}delegates": [BackendDelegateT("Xnn", BackendDelegateDataReferenceT(), [])],
            **{f"{at}{field}": changed for field, changed in changes.items()},
        }
    )


def step(*chains: Sequence[InstructionT], **changes: Any) -> pa.MethodTimeline:
    return pa.read_timeline(program(*chains, **changes)).methods[0]


def spans(method: pa.MethodTimeline) -> dict[int, tuple[str, int, int]]:
    return {tensor.value: (tensor.role, tensor.begin, tensor.end) for tensor in method.tensors}


def test_instructions() -> None:
    chains = [
        [kernel(INPUT, A), delegate(A, B), kernel(B, OUTPUT, operator=1)],
        [move(A, B), jump(A, 0), free(A)],
    ]
    method = step(*chains)
    assert [method.label(i) for i in range(method.length)] == [
        "0 aten::add.out",
        "1 delegate Xnn",
        "2 aten::abs",
        "3 move",
        "4 jump to 3 if false",
        "5 free",
    ]
    uses = {tensor.value: tensor.uses for tensor in method.tensors}
    assert uses == {INPUT: (0,), A: (0, 1, 3, 4), B: (1, 2, 3), OUTPUT: (2,), STATE: ()}


def test_lifetimes() -> None:
    method = step([kernel(INPUT, A), kernel(A, B), kernel(B, OUTPUT), kernel(INPUT, STATE)])
    assert spans(method) == {
        INPUT: ("input", 0, 4),
        A: ("activation", 0, 2),
        B: ("activation", 1, 3),
        OUTPUT: ("output", 2, 4),
        STATE: ("state", 0, 4),
    }


def test_lists_use_their_items() -> None:
    # A kernel with several results has them as a list in the end.
    method = step([kernel(INPUT, A, B, LIST), kernel(INPUT, OUTPUT), kernel(LIST, OUTPUT)])
    assert spans(method)[A] == ("activation", 0, 3)
    assert spans(method)[B] == ("activation", 0, 3)


@pytest.mark.parametrize(
    ("instructions", "end"),
    [
        pytest.param([kernel(A), kernel(INPUT, A, B), jump(B, 1), kernel(B)], 3, id="used-in-loop"),
        pytest.param([kernel(A), kernel(B), jump(B, 1), kernel(B)], 1, id="not-in-loop"),
        pytest.param([kernel(B), kernel(A), kernel(A, B), jump(B, 1)], 3, id="made-in-loop"),
        pytest.param(
            [kernel(A), kernel(B), kernel(A, B), jump(B, 2), jump(B, 1)], 5, id="nested-loops"
        ),
        pytest.param([kernel(A), jump(B, 3), kernel(A, B), kernel(B)], 3, id="forward"),
    ],
)
def test_loops(instructions: list[InstructionT], end: int) -> None:
    assert spans(step(instructions))[A][2] == end


def test_input_of_a_loop_that_begins_at_once() -> None:
    assert spans(step([kernel(INPUT, A), kernel(A, B), jump(B, 0)]))[INPUT] == ("input", 0, 3)


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        pytest.param({}, "activation", id="written-first"),
        pytest.param({"values[1].val.dataBufferIdx": 1}, "state", id="initial-value"),
    ],
)
def test_initial_values_make_state(changes: dict[str, Any], role: str) -> None:
    method = step([kernel(INPUT, A), kernel(A, OUTPUT)], **changes)
    assert spans(method)[A][0] == role


def test_what_is_read_first_is_state() -> None:
    method = step([kernel(INPUT, B), kernel(A, INPUT, B), kernel(B, A)])
    assert spans(method)[A] == ("state", 0, 3)


def test_a_delegate_may_write() -> None:
    assert spans(step([delegate(INPUT, A), kernel(A, B)]))[A] == ("activation", 0, 2)


def test_views_live_since_their_bytes_were_written() -> None:
    # B has the bytes of A, and no instruction makes it.
    views = {"values[2].val.allocationInfo.memoryOffsetLow": 16}
    method = step([kernel(INPUT, A), kernel(INPUT, OUTPUT), kernel(B, OUTPUT)], **views)
    assert spans(method)[A] == ("activation", 0, 1)
    assert spans(method)[B] == ("activation", 0, 3)
    (low, *_) = live_bytes(method.tensors_of([1]), method.length)
    assert low == 32  # the input, and A with B once


@pytest.mark.parametrize("outputs", [[OUTPUT], [INPUT]])
def test_no_instructions(outputs: list[int]) -> None:
    method = step(outputs=outputs)
    role = "output" if outputs == [INPUT] else "input"
    assert (method.length, method.label(0)) == (1, "no instruction")
    assert spans(method)[INPUT] == (role, 0, 1)
    assert spans(method)[A] == ("activation", 0, 0)


def test_names() -> None:
    info = {"values[1].val.extraTensorInfo": ExtraTensorInfoT(fullyQualifiedName="net.a")}
    method = step([kernel(INPUT, A), kernel(A, B), kernel(B, OUTPUT)], **info)
    assert [method.describe(tensor) for tensor in method.tensors] == [
        "input 0",
        "net.a",
        "activation 2, made by 1 aten::add.out",
        "output 3, made by 2 aten::add.out",
        "state 5",
    ]


BROKEN = {
    "operator": [kernel(A, operator=2)],
    "negative operator": [kernel(A, operator=-1)],
    "delegate": [delegate(A, index=1)],
    "value": [kernel(A, 6)],
    "negative value": [delegate(-1)],
    "jump": [jump(A, 2)],
    "condition": [jump(6, 0)],
    "moved": [move(A, 6)],
    "nothing": [InstructionT()],
}


@pytest.mark.parametrize("instructions", BROKEN.values(), ids=BROKEN.keys())
def test_broken_instructions(instructions: list[InstructionT]) -> None:
    with pytest.raises(pa.InvalidProgramError) as caught:
        step(instructions)
    assert str(caught.value) == (
        "execution_plan[0].chains[0].instructions[0]: "
        "expected an instruction over values, named operators and delegates of the plan"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"values[1].val.allocationInfo.memoryOffsetLow": 120},
            "execution_plan[0].values[1]: "
            "expected bytes [120, 136) inside the 128 bytes of memory id 1",
            id="outside",
        ),
        pytest.param(
            {"values[1].val.allocationInfo.memoryId": 9},
            "execution_plan[0].values[1].allocation_info.memory_id: "
            "expected 1 to 4 (exclusive) but found 9",
            id="memory-id",
        ),
        pytest.param(
            {"values[1].val.sizes": [-1]},
            "execution_plan[0].values[1].sizes[0]: expected at least 0 but found -1",
            id="negative-size",
        ),
        pytest.param(
            {"values[1].val.scalarType": 100},
            "execution_plan[0].values[1].scalar_type: expected a known scalar type but found 100",
            id="dtype",
        ),
    ],
)
def test_broken_tensors(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pa.InvalidProgramError) as caught:
        step(**changes)
    assert str(caught.value) == sentence


def test_lookup() -> None:
    timeline = pa.read_timeline(GOLDEN / "counter.pte")
    assert timeline.method("get") is timeline.methods[1]
    with pytest.raises(pa.ArenaError, match="expected a known method but found 'got'"):
        timeline.method("got")


@pytest.mark.parametrize("name", ["counter", "mixed", "stock"])
def test_json_round_trip(name: str) -> None:
    timeline = pa.read_timeline(GOLDEN / f"{name}.pte")
    assert pa.ProgramTimeline.model_validate_json(timeline.model_dump_json()) == timeline


def test_golden_stock_state() -> None:
    # The stock counter is read, added to and copied back.
    (method,) = pa.read_timeline(GOLDEN / "stock.pte").methods
    assert [tensor.role for tensor in method.tensors] == ["state", "input", "activation", "output"]
    assert find_peak(method.tensors_of([1]), method.length).nbytes <= 48


def test_damaged_files_are_drawn_or_refused() -> None:
    golden = (GOLDEN / "mixed.pte").read_bytes()
    generator = random.Random(0)  # noqa: S311
    refused = 0
    for _ in range(300):
        data = bytearray(golden)
        for _ in range(3):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            layout, timeline = read_both(data)
        except pa.InvalidProgramError:
            refused += 1
            continue
        draw_html(layout, timeline, "name.pte")
        draw_svg(layout, timeline, "name.pte")
    assert 0 < refused < 300


# --- Peaks ---

TENSORS = st.builds(
    lambda begin, length, offset, nbytes: pa.TensorLifetime(
        value=0,
        memory_id=1,
        offset=offset,
        nbytes=nbytes,
        dtype="uint8",
        begin=begin,
        end=min(begin + length, 12),
    ),
    st.integers(0, 11),
    st.integers(0, 12),
    st.integers(0, 20),
    st.integers(0, 20),
)


@settings(deadline=None)
@given(st.lists(TENSORS, max_size=8))
def test_live_bytes_are_the_union(tensors: list[pa.TensorLifetime]) -> None:
    counts = live_bytes(tensors, 12)
    for instruction, count in enumerate(counts):
        live = {
            byte
            for tensor in tensors
            if tensor.begin <= instruction < tensor.end
            for byte in range(tensor.offset, tensor.offset + tensor.nbytes)
        }
        assert count == len(live)
    peak = find_peak(tensors, 12)
    assert peak.nbytes == max(counts) == counts[peak.instruction]
    assert all(tensor.begin <= peak.instruction < tensor.end for tensor in peak.tensors)


def test_peak_of_the_largest_memory() -> None:
    half = 1 << 63
    tensors = [
        pa.TensorLifetime(
            value=v, memory_id=1, offset=v * half, nbytes=half - 1, dtype="uint8", begin=0, end=1
        )
        for v in (0, 1)
    ]
    assert live_bytes(tensors, 1) == [2 * half - 2]


def test_our_checker_agrees_that_the_programs_here_are_valid() -> None:
    _C.check(program([kernel(INPUT, A), kernel(A, OUTPUT)]))
