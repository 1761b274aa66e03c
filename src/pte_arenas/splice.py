"""Puts arenas into a serialised program: new tables in front of the old ones, nothing unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import flatbuffers
from flatbuffers import number_types
from flatbuffers.table import Table

from pte_arenas.errors import ArenaError, InvalidProgramError
from pte_arenas.frame import (
    DAMAGED,
    HEADER_AT,
    HEADER_SIZE,
    IDENTIFIER,
    alignment_of,
    insert_header,
    read_header,
)
from pte_arenas.layout import ArenaBinding, ArenaLayout
from pte_arenas.tables import BindingWriter, write_arenas, write_references
from pte_arenas.wire import ExecutionPlan as plan_table
from pte_arenas.wire import Program as program_table

# Ids of the fields that upstream's tables have in ExecuTorch 1.5.1 (a test compares). All are
# references but Program.version.
_VERSION, _EXECUTION_PLAN, _CONSTANT_BUFFER, _DELEGATE_DATA = range(4)
_PROGRAM_FIELDS = 8
_PLAN_NAME = 0
_PLAN_FIELDS = 10
_OUR_FIELD = 128


class Chunk(Protocol):
    """A piece of a file: bytes, or another object with a length that is passed on as it is."""

    def __len__(self) -> int:
        """The number of bytes."""


def splice(
    head: bytes,
    arenas: Sequence[ArenaLayout],
    bindings: Mapping[str, Sequence[ArenaBinding]],
    *,
    required_features: Sequence[str] = (),
    segment_alignment: int | None = None,
) -> bytes:
    """Puts arenas into everything of a program file that lies before its segments.

    The old tables stay as they are; a new root and new plans in front of them point at their parts.
    Takes the time of a few copies of `head`, besides that of writing the arenas.

    Args:
        head: The FlatBuffer, with the extended header if the file has one. Anything behind the
            program's end (padding, segments) is left out.
        arenas: The arenas of the program.
        bindings: The bindings of each method by its name; methods may be left out.
        required_features: Names that a reader must know to run the program.
        segment_alignment: Alignment of the first segment in the file, in bytes. By default that of
            the old file as far as the segment's position tells.

    Returns:
        The new head, without padding behind it. The segments belong, unchanged, at the
        `segment_base_offset` of its extended header.

    Raises:
        ArenaError: The program has arenas or fields unknown to this version, or a binding names a
            method that the program does not have.
        InvalidProgramError: `head` is not a program.
    """
    header = read_header(head)
    if header:
        if len(head) < header.program_size:
            raise InvalidProgramError("program", DAMAGED)
        head = head[: header.program_size]
    (root_position,) = struct.unpack_from("<I", head)
    root = Table(head, root_position)
    _check_fields("program", root, _PROGRAM_FIELDS)
    alignment = _inner_alignment(root)
    body = head[HEADER_AT + HEADER_SIZE :] if header else head[HEADER_AT:]
    padding = -len(head) % alignment
    end = len(head) + padding  # what was at position p is at the builder's offset end - p

    builder = flatbuffers.Builder(len(body) + padding + 4096)
    builder.Prep(alignment, 0)
    builder.Pad(padding)
    builder.CreateByteVector(body)
    plans = _write_plans(builder, root, end, bindings)
    extension = write_arenas(builder, arenas, required_features)
    program_table.Start(builder)
    _point_at_old(builder, root, end, range(_EXECUTION_PLAN + 1, _PROGRAM_FIELDS))
    program_table.AddVersion(builder, _version(root))
    program_table.AddExecutionPlan(builder, plans)
    program_table.AddProgramArenas(builder, extension)
    builder.Finish(program_table.End(builder), file_identifier=IDENTIFIER)
    program = builder.Output()
    if header is None:
        return bytes(program)
    return insert_header(program, header, alignment, segment_alignment)


AnyChunk = TypeVar("AnyChunk", bound=Chunk)


def splice_program(
    chunks: Iterable[bytes | AnyChunk],
    arenas: Sequence[ArenaLayout],
    bindings: Mapping[str, Sequence[ArenaBinding]],
    *,
    required_features: Sequence[str] = (),
    segment_alignment: int | None = None,
) -> list[bytes | AnyChunk]:
    """Puts arenas into a whole file that is given in chunks, such as those of exir's `Cord`.

    Args:
        chunks: The file; the program and the padding behind it in chunks of bytes, of which the
            first holds the extended header. Chunks of the segments are passed on as they are.
        arenas: As for `splice`.
        bindings: As for `splice`.
        required_features: As for `splice`.
        segment_alignment: As for `splice`.

    Returns:
        The chunks of the new file.

    Raises:
        ArenaError: As for `splice`.
        InvalidProgramError: The chunks are not those of a program.
    """
    segments = list(chunks)
    header = read_header(segments[0]) if segments and isinstance(segments[0], bytes) else None
    size = header.program_size if header else sum(map(len, segments))
    head = _take(segments, size)
    if header:
        _take(segments, header.segment_base_offset - size)
    new_head = splice(
        head,
        arenas,
        bindings,
        required_features=required_features,
        segment_alignment=segment_alignment,
    )
    new_header = read_header(new_head)
    padding = new_header.segment_base_offset - len(new_head) if new_header else 0
    return [new_head, bytes(padding), *segments] if padding > 0 else [new_head, *segments]


def _take(chunks: list[bytes | AnyChunk], size: int) -> bytes:
    """Takes `size` bytes away from the front of `chunks`."""
    taken: list[bytes] = []
    while size > 0:
        chunk = chunks.pop(0) if chunks else None
        if not isinstance(chunk, bytes):
            raise InvalidProgramError("program", DAMAGED)
        taken.append(chunk[:size])
        if len(chunk) > size:
            chunks.insert(0, chunk[size:])
        size -= len(taken[-1])
    return b"".join(taken)


def _check_fields(where: str, table: Table, known: int) -> None:
    """Refuses a table that has fields beyond the first `known` ones, which would get lost."""
    vtable = table.Pos - table.Get(number_types.SOffsetTFlags, table.Pos)
    slots = table.Get(number_types.VOffsetTFlags, vtable) // 2 - 2
    for field in range(known, slots):
        if not _offset(table, field):
            continue
        if field == _OUR_FIELD:
            raise ArenaError(f"{where}: expected a program without arenas but found some")
        raise ArenaError(
            f"{where}: expected the {known} fields of ExecuTorch 1.5.1 but found a field with id "
            f"{field}; use a version of pte-arenas for the ExecuTorch that wrote the program"
        )


def _offset(table: Table, field: int) -> int:
    """Position of a field relative to its table; 0 where it is absent."""
    return int(table.Offset(4 + 2 * field))


def _version(root: Table) -> int:
    offset = _offset(root, _VERSION)
    return int(root.Get(number_types.Uint32Flags, root.Pos + offset)) if offset else 0


def _tables(table: Table, field: int) -> list[Table]:
    """The tables of a field that is a vector of tables."""
    offset = _offset(table, field)
    if not offset:
        return []
    start = table.Vector(offset)
    return [
        Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(table.VectorLen(offset))
    ]


def _point_at_old(
    builder: flatbuffers.Builder, old: Table, end: int, fields: Iterable[int]
) -> None:
    """Gives the table under construction the old table's references."""
    for field in fields:
        if offset := _offset(old, field):
            builder.PrependUOffsetTRelativeSlot(field, end - old.Indirect(old.Pos + offset), 0)


def _write_plans(
    builder: flatbuffers.Builder,
    root: Table,
    end: int,
    bindings: Mapping[str, Sequence[ArenaBinding]],
) -> int:
    """Writes new plans for the methods with bindings, and the vector of all plans."""
    plans = _tables(root, _EXECUTION_PLAN)
    names = [plan.String(plan.Pos + _offset(plan, _PLAN_NAME)).decode() for plan in plans]
    if unknown := sorted(bindings.keys() - set(names)):
        raise ArenaError(
            f"bindings: expected methods of the program ({', '.join(names)}) but found "
            f"{', '.join(map(repr, unknown))}"
        )
    writer = BindingWriter(builder)
    offsets = []
    for index, (plan, name) in enumerate(zip(plans, names, strict=True)):
        _check_fields(f"execution_plan[{index}]", plan, _PLAN_FIELDS)
        if not bindings.get(name):
            offsets.append(end - plan.Pos)
            continue
        vector = writer.write(bindings[name])
        plan_table.Start(builder)
        _point_at_old(builder, plan, end, range(_PLAN_FIELDS))
        plan_table.AddArenaBindings(builder, vector)
        offsets.append(plan_table.End(builder))
    return write_references(builder, offsets)


def _inner_alignment(root: Table) -> int:
    """Alignment that the data inside the program needs, as far as its positions tell."""
    needed = HEADER_SIZE
    for field in (_CONSTANT_BUFFER, _DELEGATE_DATA):
        blobs = ((blob, _offset(blob, 0)) for blob in _tables(root, field))
        found = [alignment_of(blob.Vector(offset)) for blob, offset in blobs if offset]
        needed = max(needed, min(found, default=0))
    return needed
