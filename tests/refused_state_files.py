"""State files that do not fit `runtime_programs.Counter`, each with the sentence that says why."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch
from runtime_programs import counter

import pte_arenas as pa
from pte_arenas.runtime.state_file import encode_head, in_file_order


@functools.cache
def saved() -> bytes:
    head = encode_head(in_file_order(counter().arenas[0].slots), counter()._declared.sha256)
    return head + bytes(8) + torch.full((6,), 9.0).numpy().tobytes()


def file_of(header: Any, data: bytes = bytes(32)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def changed(change: Callable[[dict[str, Any]], Any], data: bytes = bytes(32)) -> bytes:
    """The header of a good file, changed in place or replaced by what `change` gives."""
    data_begin = 8 + int.from_bytes(saved()[:8], "little")
    header = json.loads(saved()[8:data_begin])
    replaced = change(header)
    return file_of(header if replaced is None else replaced, data)


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        del header[path[-1]]

    return change


SHA256 = counter()._declared.sha256
SLOT = {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
WANTED = "expected dtype, shape and data_offsets but found"
META = "expected metadata with strings program_sha256 and dim_order but found"
VERSION = "expected a state file of version 1 (pte_arenas_state in its metadata) but found"
REFUSED: list[tuple[str, type[pa.StateFileError], bytes, str]] = [
    ("empty", pa.DamagedStateError, b"", "expected at least 8 bytes but found 0"),
    ("length", pa.DamagedStateError, b"\1\0\0", "expected at least 8 bytes but found 3"),
    (
        "huge-header",
        pa.DamagedStateError,
        b"\xff" * 8,
        f"expected a state file, with a header of at most 100000000 bytes, but found {2**64 - 1}",
    ),
    (
        "truncated-header",
        pa.DamagedStateError,
        file_of(b"{}", b"")[:-1],
        "expected a header of 2 bytes but found 1: it is truncated",
    ),
    (
        "no-json",
        pa.DamagedStateError,
        file_of(b'{"a"'),
        "expected a header in JSON but found Expecting ':' delimiter: line 1 column 5 (char 4)",
    ),
    (
        "no-utf8",
        pa.DamagedStateError,
        file_of(b'{"\xff"'),
        (
            "expected a header in JSON but found 'utf-8' codec can't decode byte 0xff in position "
            "2: invalid start byte"
        ),
    ),
    (
        "repeated",
        pa.DamagedStateError,
        file_of(b'{"a": 1, "a": 2}'),
        "expected a header in JSON but found a name twice in one object",
    ),
    (
        "list",
        pa.DamagedStateError,
        file_of(b"[]"),
        "expected a header that begins with { but found another",
    ),
    (
        "space",
        pa.DamagedStateError,
        file_of(b" {}"),
        "expected a header that begins with { but found another",
    ),
    ("no-metadata", pa.DamagedStateError, file_of(b"{}", b""), f"{VERSION} none"),
    (
        "version",
        pa.DamagedStateError,
        changed(put("__metadata__", "pte_arenas_state", value="2")),
        f'{VERSION} "2"',
    ),
    (
        "no-hash",
        pa.DamagedStateError,
        changed(drop("__metadata__", "program_sha256")),
        META + ' {"pte_arenas_state": "1"}',
    ),
    (
        "metadata-number",
        pa.DamagedStateError,
        changed(put("__metadata__", "more", value=3)),
        META + " 3",
    ),
    (
        "dim-order-text",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"count": [1, -1]}')),
        META + " -1",
    ),
    (
        "dim-order-rank",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"count": [1]}')),
        (
            "tensor 'count': expected a dim order that is a permutation of 0 to 2 (exclusive) but "
            "found [1]"
        ),
    ),
    (
        "dim-order-name",
        pa.DamagedStateError,
        changed(put("__metadata__", "dim_order", value='{"more": []}')),
        "expected dim orders of its tensors but found one of 'more'",
    ),
    (
        "entry",
        pa.DamagedStateError,
        changed(put("steps", value=3)),
        f"tensor 'steps': {WANTED} 3",
    ),
    (
        "entry-field",
        pa.DamagedStateError,
        changed(put("steps", "more", value=3)),
        f"tensor 'steps'.more: {WANTED} 3",
    ),
    (
        "shape",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[2, 3.0])),
        f"tensor 'count'.shape.1: {WANTED} 3.0",
    ),
    (
        "negative-shape",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[-2, -3])),
        f"tensor 'count'.shape.0: {WANTED} -2",
    ),
    (
        "rank",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[1] * 17)),
        f"tensor 'count'.shape: {WANTED} {[1] * 17}",
    ),
    (
        "unknown-dtype",
        pa.DamagedStateError,
        changed(put("steps", "dtype", value="C64")),
        "tensor 'steps': expected a dtype of slots but found \"C64\"",
    ),
    (
        "nbytes",
        pa.DamagedStateError,
        changed(put("count", "shape", value=[2, 2])),
        "tensor 'count': expected 16 bytes for shape [2, 2] of float32 but found 24",
    ),
    (
        "hole",
        pa.DamagedStateError,
        changed(put("count", "data_offsets", value=[12, 36])),
        "tensor 'count': expected bytes from 8 on but found 12",
    ),
    (
        "overlap",
        pa.DamagedStateError,
        changed(put("count", "data_offsets", value=[4, 28])),
        "tensor 'count': expected bytes from 8 on but found 4",
    ),
    (
        "truncated",
        pa.DamagedStateError,
        saved()[:-1],
        "expected 32 bytes behind the header but found 31: it is truncated",
    ),
    (
        "longer",
        pa.DamagedStateError,
        saved() + b"\0",
        "expected 32 bytes behind the header but found 33",
    ),
    (
        "other-program",
        pa.OtherProgramError,
        changed(put("__metadata__", "program_sha256", value="0123456789abcdef0")),
        (
            f"expected state of the program with SHA-256 {SHA256[:16]}... but found state of "
            "'0123456789abcdef'...: allow_other_program=True loads it where all slots fit"
        ),
    ),
    (
        "missing",
        pa.MissingSlotError,
        changed(drop("count"), bytes(8)),
        (
            "expected slot 'count' of arena 'state' but found none: arenas=[...] loads the arenas "
            "that the file has"
        ),
    ),
    (
        "unknown",
        pa.UnknownSlotError,
        changed(put("more", value={**SLOT, "data_offsets": [32, 40]}), bytes(40)),
        "expected slots of the program but found 'more'",
    ),
    (
        "dtype",
        pa.SlotMismatchError,
        changed(put("count", "dtype", value="I32")),
        "slot 'count': expected float32 but found int32",
    ),
    (
        "sizes",
        pa.SlotMismatchError,
        changed(put("count", "shape", value=[3, 2])),
        "slot 'count': expected sizes [2, 3] but found [3, 2]",
    ),
    (
        "dim-order",
        pa.SlotMismatchError,
        changed(
            lambda header: {
                **header,
                "__metadata__": {**header["__metadata__"], "dim_order": '{"count": [1, 0]}'},
                "count": {**header["count"], "shape": [3, 2]},
            }
        ),
        "slot 'count': expected dim order [0, 1] but found [1, 0]",
    ),
]
