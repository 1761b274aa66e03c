"""Every rule of docs/checks.md, in Python and in C++, which must say the same of every file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import corpus
import pytest
import refused_arenas
import refused_plans
from corpus import UINT64_MAX, Changes, accepted, device, file_with, slot, value
from hypothesis import given
from hypothesis import strategies as st

import pte_arenas as pa
from pte_arenas.runtime import _C
from pte_arenas.wire.ArenaBinding import ArenaBindingT
from pte_arenas.wire.DataSegment import DataSegmentT
from pte_arenas.wire.ProgramArena import ProgramArenaT
from pte_arenas.wire.ScalarType import ScalarType

REFUSED = [
    *refused_arenas.TABLE,
    *refused_arenas.ARENAS,
    *refused_arenas.SLOTS,
    *refused_plans.BINDINGS,
    *refused_plans.TENSORS,
    *refused_plans.ENDS,
]

S1 = "arenas[0].slots[1]"
STEP, PEEK = "executionPlan[0]", "executionPlan[1]"
CACHE = slot("cache", [4, 4], nbytes=64)
STEPS = slot("steps", [], ScalarType.LONG, offset=64, nbytes=8)
STOCK: dict[str, Any] = {
    "programArenas": None,
    f"{STEP}.arenaBindings": None,
    f"{PEEK}.arenaBindings": None,
}

ACCEPTED = [
    accepted({}, id="sound"),
    accepted(STOCK, id="stock"),
    accepted({**STOCK, f"{STEP}.nonConstBufferSizes": [0, -1]}, id="stock-unchecked"),
    accepted({f"{STEP}.name": "peek", f"{PEEK}.name": None}, id="method-names"),
    accepted({"arenas[0].name": "cache", "arenas[1].name": 'é"\x00' * 99}, id="names"),
    accepted({"arenas[1].size": UINT64_MAX - 64}, id="largest-arena"),
    accepted({"arenas[0].alignment": 8, "arenas[1].alignment": 4}, id="lowest-alignment"),
    accepted({"arenas[0].alignment": 2**31}, id="highest-alignment"),
    accepted({"arenas[0].size": 72, f"{PEEK}.nonConstBufferSizes": [0, 72]}, id="no-slack"),
    accepted({"arenas[0].slots[0].dimOrder": [1, 0]}, id="dim-order"),
    accepted({"arenas[0].slots[0]": slot("cache", [1] * 15 + [16], nbytes=64)}, id="16-dimensions"),
    accepted({f"{S1}.sizes": None, f"{S1}.dimOrder": None}, id="rank-0-absent"),
    accepted({"arenas[0].slots": [CACHE, slot("no", [0], offset=64), STEPS]}, id="empty-between"),
    accepted(
        {"arenas[0].slots": [slot("no", [2**31 - 1] * 3 + [0]), CACHE, STEPS]}, id="empty-first"
    ),
    accepted(
        {
            "mutableDataSegments[0].offsets": [0, 16, 80],
            "arenas[0].slots": [CACHE, STEPS, slot("no", [0], offset=96, data_buffer_idx=2)],
        },
        id="empty-at-the-end",
    ),
    accepted(
        {
            "arenas[0].size": 2**33,
            f"{S1}.offset": 2**32 + 8,
            f"{STEP}.values[3].val.allocationInfo.memoryOffsetLow": 8,
            f"{STEP}.values[3].val.allocationInfo.memoryOffsetHigh": 1,
            f"{PEEK}.nonConstBufferSizes": [0, 2**33],
        },
        id="beyond-32-bits",
    ),
    accepted({f"{STEP}.arenaBindings[0].accesses": None}, id="no-accesses"),
    accepted(
        {
            f"{STEP}.arenaBindings[0].accesses[0].slot": 1,
            f"{STEP}.arenaBindings[0].accesses[1].slot": 0,
        },
        id="accesses-out-of-order",
    ),
    accepted({f"{PEEK}.arenaBindings": None}, id="plan-without-bindings"),
    accepted({f"{PEEK}.nonConstBufferSizes": [7, 0], f"{PEEK}.values": None}, id="size-0"),
    accepted(
        {
            f"{STEP}.arenaBindings": [ArenaBindingT(3, 1), ArenaBindingT(2, 0)],
            "arenas[1].size": 0,
            f"{STEP}.values[4]": value([0], memory_id=3),
        },
        id="arena-of-0-bytes",
    ),
    accepted({"arenas[1]": ProgramArenaT("other", 0), f"{STEP}.arenaBindings": []}, id="unbound"),
    accepted(
        {
            "arenas[1].deviceType": 1,
            "arenas[1].deviceIndex": 127,
            f"{STEP}.nonConstBufferDevice": [device(-1, 9), device(1, 9, -3), device(3, 1, 127)],
        },
        id="devices",
    ),
    accepted({f"{STEP}.values[1].val.scalarType": 8}, id="private-tensor-unchecked"),
    accepted(
        {f"{STEP}.values[2]": value([2, 3, 5], ScalarType.HALF, memory_id=2, offset=4)}, id="view"
    ),
    accepted({f"{STEP}.values[2]": value([0], memory_id=2, offset=64)}, id="empty-at-a-border"),
    accepted({f"{STEP}.values[2]": value([0], memory_id=2, offset=72)}, id="empty-behind-a-slot"),
    accepted({f"{STEP}.values[4]": value([6], memory_id=3, offset=8)}, id="scratch-to-the-end"),
    accepted({f"{STEP}.values[4]": value([0], memory_id=3, offset=32)}, id="empty-behind-scratch"),
]


def verdict(check: Callable[[bytes], None], data: bytes) -> str:
    """What a checker says of a file."""
    try:
        check(data)
    except pa.InvalidProgramError as error:
        return f"{error.where}: {error.message}"
    return "sound"


@pytest.mark.parametrize(
    "check", [pytest.param(pa.check, id="py"), pytest.param(_C.check, id="cpp")]
)
@pytest.mark.parametrize(("changes", "where", "message"), REFUSED)
def test_refuses(
    changes: Changes, where: str, message: str, check: Callable[[bytes], None]
) -> None:
    with pytest.raises(pa.InvalidProgramError) as caught:
        check(file_with(changes))
    assert (caught.value.where, caught.value.message) == (where, message)


@pytest.mark.parametrize("changes", ACCEPTED)
def test_accepts(changes: Changes) -> None:
    data = file_with(changes)
    assert verdict(pa.check, data) == "sound"
    assert verdict(_C.check, data) == "sound"


SOUND = file_with({})
PROGRAM_SIZE, SEGMENTS_AT = struct.unpack_from("<QQ", SOUND, 16)


def patched(position: int, replacement: bytes) -> bytes:
    return SOUND[:position] + replacement + SOUND[position + len(replacement) :]


def without_header(changes: Changes) -> bytes:
    """The program alone, as files without segments are."""
    data = file_with(changes)
    (root,) = struct.unpack_from("<I", data)
    header = corpus.HEADER.size
    return struct.pack("<I", root - header) + data[4:8] + data[8 + header : -80]


DAMAGED = [
    pytest.param(b"", id="empty"),
    pytest.param(SOUND[:8], id="8-bytes"),
    pytest.param(SOUND[:63], id="63-bytes"),
    pytest.param(b"PK\x03\x04" + bytes(200), id="another-format"),
    pytest.param(patched(4, b"ET13"), id="another-identifier"),
    pytest.param(patched(0, b"\xff\xff\xff\xff"), id="root"),
    pytest.param(patched(12, struct.pack("<I", 23)), id="header-length"),
    pytest.param(patched(16, struct.pack("<Q", PROGRAM_SIZE - 16)), id="program-cut"),
    pytest.param(patched(16, struct.pack("<Q", len(SOUND) + 1)), id="program-beyond"),
    pytest.param(patched(24, struct.pack("<Q", PROGRAM_SIZE - 1)), id="segments-inside"),
    pytest.param(patched(24, struct.pack("<Q", UINT64_MAX)), id="segments-beyond"),
    pytest.param(patched(32, struct.pack("<Q", 81)), id="segments-too-large"),
    pytest.param(patched(32, struct.pack("<Q", UINT64_MAX)), id="segments-overflow"),
    pytest.param(SOUND[:-1], id="truncated"),
    pytest.param(SOUND[:SEGMENTS_AT], id="truncated-before-segments"),
    pytest.param(file_with({"segments[0].size": 81}), id="segment-too-large"),
    pytest.param(file_with({"segments[0].offset": UINT64_MAX - 79}), id="segment-overflow"),
    pytest.param(without_header({}), id="segments-without-header"),
    pytest.param(file_with({"arenas[0].name": b"\xff"}), id="arena-name"),
    pytest.param(file_with({f"{S1}.fullyQualifiedName": b"\xed\xa0\x80"}), id="slot-name"),
    pytest.param(file_with({"programArenas.requiredFeatures": [b"\xc0\x80"]}), id="feature"),
    pytest.param(file_with({f"{PEEK}.name": b"a\xf4\x90\x80\x80"}), id="method-name"),
]


@pytest.mark.parametrize("data", DAMAGED)
def test_refuses_damage(data: bytes) -> None:
    expected = (
        "program: expected a well-formed ExecuTorch program but found damaged or truncated data"
    )
    assert verdict(pa.check, data) == expected
    assert verdict(_C.check, data) == expected


@pytest.mark.parametrize(
    "segments",
    [
        pytest.param(None, id="no-segments"),
        # As ExecuTorch writes a program without weights.
        pytest.param([DataSegmentT(0, 0)], id="an-empty-segment"),
    ],
)
def test_accepts_a_file_without_header(segments: list[DataSegmentT] | None) -> None:
    data = without_header({"segments": segments, "arenas[0].slots[0].dataBufferIdx": 0})
    assert verdict(pa.check, data) == verdict(_C.check, data) == "sound"


NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 12, 16, 32, 56, 63, 64, 65, 72, 80, 96, 127])
SIGNED = NUMBERS | st.sampled_from([-128, -1])
LARGE = NUMBERS | st.sampled_from([2**32 - 1])
HUGE = LARGE | st.sampled_from([2**32, 2**63, UINT64_MAX - 64, UINT64_MAX])
LIST = st.lists(SIGNED, max_size=3)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "arenas[0].size": HUGE,
    "arenas[1].size": HUGE,
    "arenas[0].alignment": LARGE,
    "arenas[0].lifetime": st.sampled_from([0, 0, 1, 2]),
    "arenas[0].slots[0].scalarType": SIGNED,
    "arenas[0].slots[0].sizes": LIST,
    "arenas[0].slots[0].dimOrder": st.lists(st.integers(0, 3), max_size=3),
    "arenas[0].slots[0].nbytes": HUGE,
    f"{S1}.offset": HUGE,
    f"{S1}.dataBufferIdx": LARGE,
    "mutableDataSegments[0].offsets": st.lists(HUGE, max_size=3),
    f"{STEP}.nonConstBufferSizes": LIST,
    f"{STEP}.arenaBindings[0].memoryId": LARGE,
    f"{STEP}.arenaBindings[0].arena": LARGE,
    f"{STEP}.values[2].val.scalarType": SIGNED,
    f"{STEP}.values[2].val.sizes": LIST,
    f"{STEP}.values[2].val.allocationInfo.memoryId": LARGE,
    f"{STEP}.values[2].val.allocationInfo.memoryOffsetLow": LARGE,
    f"{STEP}.values[2].val.allocationInfo.memoryOffsetHigh": LARGE,
    f"{PEEK}.nonConstBufferSizes[1]": SIGNED,
}


# A few fields at a time, so that the later rules have their turn.
CHANGES = st.sets(st.sampled_from(sorted(FIELDS)), max_size=3).flatmap(
    lambda paths: st.fixed_dictionaries({path: FIELDS[path] for path in sorted(paths)})
)


@given(CHANGES)
def test_python_and_cpp_agree_on_any_values(changes: Changes) -> None:
    data = file_with(changes)
    assert verdict(pa.check, data) == verdict(_C.check, data)


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_python_and_cpp_agree_on_any_damage(damage: list[tuple[int, int]]) -> None:
    data = bytearray(SOUND)
    for position, byte in damage:
        data[position] = byte
    assert verdict(pa.check, bytes(data)) == verdict(_C.check, bytes(data))
