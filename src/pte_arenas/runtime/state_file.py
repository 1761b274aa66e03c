"""The format of state files: `.safetensors` with one tensor per slot. See docs/state.md.

The reader is our own, beside the one of the `safetensors` package that tests hold against it: it
reads a file that was opened once, without mapping it, so that a file that shrinks meanwhile is an
error and not a signal; and it says in one sentence each what is wrong.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pte_arenas.dtypes import DTYPES
from pte_arenas.errors import ArenaError, DamagedStateError
from pte_arenas.layout import ArenaSlot
from pte_arenas.rules.tensors import LONGEST_RANK, quoted

VERSION = "1"
_METADATA = "__metadata__"  # the key of safetensors headers that is no tensor

_MOST_HEADER_BYTES = 100_000_000  # as the safetensors package has it
_CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}
_DTYPES = {code: DTYPES[name] for name, code in _CODES.items()}

_Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
_Numbers = Annotated[list[_Natural], Field(max_length=LONGEST_RANK)]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a state file.

    Attributes:
        dtype: As torch spells it.
        sizes: In the order of the dimensions of the slot, whatever their order in memory.
        dim_order: Dimensions from the outermost in memory to the innermost.
        offset: First byte in the file.
    """

    dtype: str
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class StateFile:
    """What a state file says before its bytes.

    Attributes:
        program_sha256: Of the program that the state is of.
        tensors: By fully qualified name of the slot.
    """

    program_sha256: str
    tensors: Mapping[str, StoredTensor]


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str]

    program_sha256: str
    dim_order: str = "{}"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: str
    shape: _Numbers
    data_offsets: Annotated[list[_Natural], Field(min_length=2, max_length=2)]


_DimOrders = TypeAdapter(dict[str, _Numbers], config=ConfigDict(strict=True))


def in_file_order(slots: Iterable[ArenaSlot]) -> list[ArenaSlot]:
    """Wide elements first, so that each tensor is aligned to its own; then by name."""
    return sorted(slots, key=lambda slot: (-DTYPES[slot.dtype].width, slot.fqn))


def encode_head(slots: Iterable[ArenaSlot], program_sha256: str) -> bytes:
    """Makes the bytes in front of the slots' own, which follow in the given order.

    Raises:
        ArenaError: A slot has a dtype that such files do not know.
    """
    entries: dict[str, Any] = {}
    dim_orders = {}
    offset = 0
    for slot in slots:
        _check_storable(slot)
        if slot.dim_order != tuple(range(len(slot.sizes))):
            dim_orders[slot.fqn] = list(slot.dim_order)
        entries[slot.fqn] = {
            "dtype": _CODES[slot.dtype],
            "shape": [slot.sizes[dim] for dim in slot.dim_order],
            "data_offsets": [offset, offset + slot.nbytes],
        }
        offset += slot.nbytes
    metadata = {"pte_arenas_state": VERSION, "program_sha256": program_sha256}
    if dim_orders:
        metadata["dim_order"] = json.dumps(dim_orders, separators=(",", ":"))
    text = json.dumps({_METADATA: metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _check_storable(slot: ArenaSlot) -> None:
    way_out = "leave its arena out or keep the state in a snapshot"
    if slot.dtype not in _CODES:
        raise ArenaError(
            f"slot {quoted(slot.fqn)}: expected a dtype that .safetensors files have but found "
            f"{slot.dtype}: {way_out}"
        )
    if slot.fqn == _METADATA:
        raise ArenaError(f"expected slots of other names but found {quoted(slot.fqn)}: {way_out}")


def read_head(file: BinaryIO, path: str) -> StateFile:
    """Reads and checks everything but the bytes of the tensors.

    Raises:
        DamagedStateError: The file is no state file, or damaged.
    """
    size = os.fstat(file.fileno()).st_size
    header = _read_header(file, path, size)
    program_sha256, dim_orders = _read_metadata(header.pop(_METADATA, None), path)
    entries = {name: _read_entry(name, entry, path) for name, entry in header.items()}
    first = file.tell()
    _check_offsets(entries, size - first, path)
    tensors = {
        name: _tensor(name, entry, dim_orders.pop(name, None), first, path)
        for name, entry in entries.items()
    }
    for name in dim_orders:
        raise DamagedStateError(
            f"{path}: expected dim orders of its tensors but found one of {quoted(name)}"
        )
    return StateFile(program_sha256, tensors)


def _read_header(file: BinaryIO, path: str, size: int) -> dict[str, Any]:
    if size < 8:
        raise DamagedStateError(f"{path}: expected at least 8 bytes but found {size}")
    length = int.from_bytes(file.read(8), "little")
    if length > _MOST_HEADER_BYTES:
        raise DamagedStateError(
            f"{path}: expected a state file, with a header of at most {_MOST_HEADER_BYTES} bytes, "
            f"but found {length}"
        )
    if length > size - 8:
        raise DamagedStateError(
            f"{path}: expected a header of {length} bytes but found {size - 8}: it is truncated"
        )
    text = file.read(length)
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise DamagedStateError(f"{path}: expected a header in JSON but found {error}") from None
    if text[:1] != b"{" or not isinstance(header, dict):
        raise DamagedStateError(f"{path}: expected a header that begins with {{ but found another")
    return header


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice in one object")
    return found


def _read_metadata(found: Any, path: str) -> tuple[str, dict[str, list[int]]]:
    """The program's hash, and the dim orders that are not the dimensions' own."""
    version = found.get("pte_arenas_state") if isinstance(found, dict) else None
    if version != VERSION:
        raise DamagedStateError(
            f"{path}: expected a state file of version {VERSION} (pte_arenas_state in its "
            f"metadata) but found {'none' if version is None else _short(version)}"
        )
    try:
        metadata = _Metadata.model_validate(found)
        return metadata.program_sha256, _DimOrders.validate_json(metadata.dim_order)
    except ValidationError as error:
        raise DamagedStateError(
            f"{path}: expected metadata with strings program_sha256 and dim_order but found "
            f"{_what(error)}"
        ) from None


def _read_entry(name: str, found: Any, path: str) -> _Entry:
    try:
        entry = _Entry.model_validate(found)
    except ValidationError as error:
        raise DamagedStateError(
            f"{path}: tensor {quoted(name)}{_where(error)}: expected dtype, shape and data_offsets "
            f"but found {_what(error)}"
        ) from None
    if entry.dtype not in _DTYPES:
        raise DamagedStateError(
            f"{path}: tensor {quoted(name)}: expected a dtype of slots but found "
            f"{_short(entry.dtype)}"
        )
    begin, end = entry.data_offsets
    nbytes = math.prod(entry.shape) * _DTYPES[entry.dtype].width
    if end - begin != nbytes:
        raise DamagedStateError(
            f"{path}: tensor {quoted(name)}: expected {_short(nbytes)} bytes for shape "
            f"{_short(entry.shape)} of {_DTYPES[entry.dtype].name} but found {end - begin}"
        )
    return entry


def _check_offsets(entries: Mapping[str, _Entry], nbytes: int, path: str) -> None:
    """Checks that the tensors cover the rest of the file, each byte once."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.data_offsets[0] != end:
            raise DamagedStateError(
                f"{path}: tensor {quoted(name)}: expected bytes from {end} on but found "
                f"{entry.data_offsets[0]}"
            )
        end = entry.data_offsets[1]
    if end != nbytes:
        raise DamagedStateError(
            f"{path}: expected {end} bytes behind the header but found {nbytes}"
            + (": it is truncated" if nbytes < end else "")
        )


def _tensor(
    name: str, entry: _Entry, dim_order: list[int] | None, first: int, path: str
) -> StoredTensor:
    rank = len(entry.shape)
    order = tuple(range(rank)) if dim_order is None else tuple(dim_order)
    if sorted(order) != list(range(rank)):
        raise DamagedStateError(
            f"{path}: tensor {quoted(name)}: expected a dim order that is a permutation of 0 to "
            f"{rank} (exclusive) but found {_short(list(order))}"
        )
    sizes = dict(zip(order, entry.shape, strict=True))
    return StoredTensor(
        dtype=_DTYPES[entry.dtype].name,
        sizes=tuple(sizes[dim] for dim in range(rank)),
        dim_order=order,
        offset=first + entry.data_offsets[0],
    )


def _where(error: ValidationError) -> str:
    return "".join(f".{part}" for part in error.errors()[0]["loc"][:2])


def _what(error: ValidationError) -> str:
    return _short(error.errors()[0]["input"])


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."
