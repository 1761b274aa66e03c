"""The rules of docs/checks.md on the arena table, each with a change that breaks it.

A row is: changes to the sound program of corpus.py, the path and the sentence. Where it fits, the
changes also break a later rule, so that the order is tested.
"""

from __future__ import annotations

from typing import Any

from corpus import UINT64_MAX, refused, slot

from pte_arenas.wire.ProgramArena import ProgramArenaT
from pte_arenas.wire.ScalarType import ScalarType

LARGE = 2**31 - 1

S0, S1 = "arenas[0].slots[0]", "arenas[0].slots[1]"


def same_names(name: str) -> dict[str, Any]:
    """Two arenas of this name."""
    return {"arenas[0].name": name, "arenas[1].name": name}


TABLE = [
    refused(
        "execution_plan[0].arena_bindings",
        "expected no bindings in a program without arenas but found 2",
        {"programArenas": None},
        id="bindings-without-arenas",
    ),
    refused(
        "program_arenas.format",
        "expected 1 but found 0",
        {"programArenas.format": 0},
        id="format-absent",
    ),
    refused(
        "program_arenas.format",
        "expected 1 but found 2",
        {"programArenas.format": 2, "programArenas.requiredFeatures": ["x"]},
        id="format-before-features",
    ),
    refused(
        "program_arenas.required_features[0]",
        "expected a feature that this reader knows but found 'paged\\n'",
        {"programArenas.requiredFeatures": ["paged\n", "other"], "arenas[0].name": ""},
        id="feature",
    ),
    refused(
        "program_arenas.required_features[0]",
        "expected a feature that this reader knows but found ''",
        {"programArenas.requiredFeatures": [""]},
        id="feature-empty",
    ),
]

ARENAS = [
    refused(
        "arenas[0].name", "expected a name but found none", {"arenas[0].name": None}, id="absent"
    ),
    refused("arenas[1].name", "expected a name but found none", {"arenas[1].name": ""}, id="empty"),
    refused(
        "arenas[1].name",
        "expected a unique name but found 'state' again",
        {"arenas[1].name": "state", "arenas[1].lifetime": 7},
        id="twice",
    ),
    refused(
        "arenas[1].name",
        r"""expected a unique name but found '\"\\/\b\f\n\r\t\u0000\u001b\u007f'[b]' again""",
        same_names("\"\\/\b\f\n\r\t\0\x1b\x7f'[b]"),
        id="escapes",
    ),
    refused(
        "arenas[1].name",
        r"expected a unique name but found '\u00e9\u20ac\ud83d\ude00' again",
        same_names("é€😀"),
        id="escapes-beyond-ascii",
    ),
    refused(
        "arenas[1].name",
        f"expected a unique name but found '{'x' * 60}' again",
        same_names("x" * 60),
        id="60-characters",
    ),
    refused(
        "arenas[1].name",
        f"expected a unique name but found '{chr(92)}u00e9{'x' * 59}...' again",
        same_names("é" + "x" * 60),
        id="61-characters",
    ),
    refused(
        "arenas[0].lifetime",
        "expected 0 (state) or 1 (scratch) but found 2",
        {"arenas[0].lifetime": 2, "arenas[0].deviceType": 2},
        id="lifetime",
    ),
    refused(
        "arenas[0].lifetime",
        "expected 0 (state) or 1 (scratch) but found -1",
        {"arenas[0].lifetime": -1},
        id="lifetime-negative",
    ),
    refused(
        "arenas[0].device_type",
        "expected 0 (cpu) or 1 (cuda) but found 2",
        {"arenas[0].deviceType": 2, "arenas[0].deviceIndex": -1},
        id="device-type",
    ),
    refused(
        "arenas[0].device_index",
        "expected at least 0 but found -1",
        {"arenas[0].deviceIndex": -1, "arenas[0].alignment": 0},
        id="device-index",
    ),
    refused(
        "arenas[0].alignment",
        "expected a power of two but found 0",
        {"arenas[0].alignment": 0},
        id="alignment-0",
    ),
    refused(
        "arenas[0].alignment",
        "expected a power of two but found 12",
        {"arenas[0].alignment": 12, "arenas[0].size": UINT64_MAX},
        id="alignment-12",
    ),
    refused(
        "arenas[1].size",
        f"expected at most {UINT64_MAX - 64} bytes but found {UINT64_MAX - 63}",
        {"arenas[1].size": UINT64_MAX - 63},
        id="size",
    ),
    refused(
        "arenas[1].slots",
        "expected no slots in a scratch arena but found 1",
        {"arenas[1].slots": [slot(None, [])]},
        id="scratch-with-slots",
    ),
]

SLOTS = [
    refused(
        f"{S0}.fully_qualified_name",
        "expected a name but found none",
        {f"{S0}.fullyQualifiedName": None},
        id="absent",
    ),
    refused(
        f"{S1}.fully_qualified_name",
        "expected a unique name but found 'cache' again",
        {f"{S1}.fullyQualifiedName": "cache", f"{S1}.scalarType": 8},
        id="twice",
    ),
    refused(
        "arenas[1].slots[0].fully_qualified_name",
        "expected a unique name but found 'steps' again",
        {"arenas[1]": ProgramArenaT("other", 8, slots=[slot("steps", [2], nbytes=8)])},
        id="twice-across-arenas",
    ),
    refused(
        f"{S0}.scalar_type",
        "expected a known scalar type but found 8",
        {f"{S0}.scalarType": 8, f"{S0}.sizes": [-1]},
        id="complex",
    ),
    refused(
        f"{S0}.scalar_type",
        "expected a known scalar type but found -1",
        {f"{S0}.scalarType": -1},
        id="scalar-type-negative",
    ),
    refused(
        f"{S0}.sizes",
        "expected at most 16 dimensions but found 17",
        {f"{S0}.sizes": [-1] * 17},
        id="17-dimensions",
    ),
    refused(
        f"{S0}.sizes[1]",
        "expected at least 0 but found -4",
        {f"{S0}.sizes": [4, -4], f"{S0}.dimOrder": [7]},
        id="size-negative",
    ),
    refused(
        f"{S0}.dim_order",
        "expected a permutation of 0 to 2 (exclusive) but found [0, 0]",
        {f"{S0}.dimOrder": [0, 0], f"{S0}.nbytes": 1},
        id="dim-order-twice",
    ),
    refused(
        f"{S0}.dim_order",
        "expected a permutation of 0 to 2 (exclusive) but found [1, 2]",
        {f"{S0}.dimOrder": [1, 2]},
        id="dim-order-from-1",
    ),
    refused(
        f"{S0}.dim_order",
        "expected a permutation of 0 to 2 (exclusive) but found []",
        {f"{S0}.dimOrder": None},
        id="dim-order-absent",
    ),
    refused(
        f"{S1}.dim_order",
        "expected a permutation of 0 to 0 (exclusive) but found [0]",
        {f"{S1}.dimOrder": [0]},
        id="dim-order-of-rank-0",
    ),
    refused(
        f"{S0}.dim_order",
        "expected a permutation of 0 to 2 (exclusive) but found "
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ...]",
        {f"{S0}.dimOrder": list(range(17))},
        id="dim-order-long",
    ),
    refused(
        f"{S0}.nbytes",
        f"expected a size that fits 64 bits but found sizes [{LARGE}, {LARGE}, 2]",
        {f"{S0}.sizes": [LARGE, LARGE, 2], f"{S0}.dimOrder": [0, 1, 2]},
        id="overflow",
    ),
    refused(
        f"{S0}.nbytes",
        f"expected a size that fits 64 bits but found sizes [{', '.join([str(2**24)] * 16)}]",
        {f"{S0}.sizes": [2**24] * 16, f"{S0}.dimOrder": list(range(16))},
        id="overflow-far",
    ),
    refused(
        f"{S0}.nbytes",
        f"expected 18446744056529682436 for sizes [{LARGE}, {LARGE}] of float32 but found 64",
        {f"{S0}.sizes": [LARGE, LARGE]},
        id="just-below-overflow",
    ),
    refused(
        f"{S0}.nbytes",
        f"expected 0 for sizes [{LARGE}, {LARGE}, {LARGE}, 0] of float32 but found 64",
        {f"{S0}.sizes": [LARGE, LARGE, LARGE, 0], f"{S0}.dimOrder": [0, 1, 2, 3]},
        id="zero-after-overflow",
    ),
    refused(
        f"{S0}.nbytes",
        "expected 32 for sizes [4, 4] of bfloat16 but found 64",
        {f"{S0}.scalarType": ScalarType.BFLOAT16},
        id="nbytes",
    ),
    refused(
        f"{S1}.offset",
        "expected a multiple of 8 but found 68",
        {f"{S1}.offset": 68, "arenas[0].size": 70},
        id="offset",
    ),
    refused(
        S1,
        "expected bytes [64, 72) inside the arena of 71 bytes",
        {"arenas[0].size": 71, "arenas[0].alignment": 4},
        id="outside",
    ),
    refused(
        S1,
        "expected bytes [18446744073709551608, 2^64 or more) inside the arena of 96 bytes",
        {f"{S1}.offset": UINT64_MAX - 7},
        id="outside-overflow",
    ),
    refused(
        "arenas[0].alignment",
        "expected at least 8 for slot 'steps' but found 4",
        {"arenas[0].alignment": 4, f"{S1}.dataBufferIdx": 9},
        id="alignment",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        "expected 0 in a program without initial data but found 1",
        {"mutableDataSegments": None},
        id="no-initial-data",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        "expected 0 in a program without initial data but found 1",
        {"mutableDataSegments[0].segmentIndex": 1},
        id="no-such-segment",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        "expected an index below 2 but found 2",
        {f"{S0}.dataBufferIdx": 2},
        id="data-index",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        "expected an index below 0 but found 1",
        {"mutableDataSegments[0].offsets": None},
        id="no-offsets",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        "expected bytes [17, 81) inside the initial data of 80 bytes",
        {"mutableDataSegments[0].offsets": [0, 17]},
        id="data-outside",
    ),
    refused(
        f"{S0}.data_buffer_idx",
        f"expected bytes [{UINT64_MAX - 63}, 2^64 or more) inside the initial data of 80 bytes",
        {"mutableDataSegments[0].offsets": [0, UINT64_MAX - 63]},
        id="data-overflow",
    ),
    refused(
        S1,
        "expected slots in the order of their offsets but found 'steps' at [0, 8) after [16, 80)",
        {f"{S0}.offset": 16, f"{S1}.offset": 0},
        id="order",
    ),
    refused(
        S1,
        "expected bytes apart from 'cache' at [0, 64) but found [56, 64)",
        {f"{S1}.offset": 56},
        id="overlap",
    ),
    refused(
        S1,
        "expected bytes apart from 'cache' at [0, 64) but found [0, 8)",
        {f"{S1}.offset": 0},
        id="same-offset",
    ),
    refused(
        S1,
        "expected bytes apart from 'cache' at [0, 64) but found [8, 8)",
        {f"{S1}.sizes": [0], f"{S1}.dimOrder": [0], f"{S1}.nbytes": 0, f"{S1}.offset": 8},
        id="empty-inside",
    ),
]
