"""The frame of a program file: the extended header at its front and the segments behind it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pte_arenas.errors import InvalidProgramError

DAMAGED = "expected a well-formed ExecuTorch program but found damaged or truncated data"
IDENTIFIER = b"ET12"
HEADER_AT = 8
"""The header lies behind the FlatBuffer's root offset and identifier."""

_MAGIC = b"eh00"
# Magic, length of the header, size of the program, base and size of the segments.
_HEADER = struct.Struct("<4sIQQQ")
HEADER_SIZE = _HEADER.size
_MIN_HEADER_SIZE = 24  # without the size of the segments

# What data was aligned to is not recorded in a file; a page is the most that a loader can keep.
_MAX_ALIGNMENT = 4096


class ExtendedHeader(NamedTuple):
    """Sizes of the parts of a file, in bytes from its start.

    Attributes:
        program_size: Everything before the padding and the segments.
        segment_base_offset: Where the first segment begins; 0 in a file without segments.
        segment_data_size: All segments with the padding between them; 0 where not known.
    """

    program_size: int
    segment_base_offset: int
    segment_data_size: int


def read_header(head: bytes) -> ExtendedHeader | None:
    """Reads the extended header, which a file without segments does not have.

    Args:
        head: At least the first 40 bytes of the file, or all of it.

    Raises:
        InvalidProgramError: The file is not a program.
    """
    if head[4:8] != IDENTIFIER:
        raise InvalidProgramError("program", DAMAGED)
    if len(head) < HEADER_AT + HEADER_SIZE:
        return None
    magic, length, *sizes = _HEADER.unpack_from(head, HEADER_AT)
    if magic != _MAGIC or length < _MIN_HEADER_SIZE:
        return None
    header = ExtendedHeader(*sizes)
    return header if length >= HEADER_SIZE else header._replace(segment_data_size=0)


def insert_header(
    program: bytearray | bytes, old: ExtendedHeader, alignment: int, segment_alignment: int | None
) -> bytes:
    """Returns a FlatBuffer with an extended header in it.

    Args:
        program: A FlatBuffer without the header.
        old: The header of the file whose segments will follow.
        alignment: The largest alignment inside the FlatBuffer, a power of two; it is kept.
        segment_alignment: Alignment of the first segment. None: that of the old file, as far as the
            position of its first segment tells.
    """
    length = aligned(HEADER_SIZE, alignment)
    size = length + len(program)
    base = old.segment_base_offset
    if base:
        base = aligned(size, segment_alignment or alignment_of(base))
    header = _HEADER.pack(_MAGIC, HEADER_SIZE, size, base, old.segment_data_size)
    (root,) = struct.unpack_from("<I", program)
    front = struct.pack("<I", root + length) + IDENTIFIER + header.ljust(length, b"\0")
    return b"".join((front, memoryview(program)[HEADER_AT:]))


def aligned(size: int, alignment: int) -> int:
    """Rounds a size up to a multiple of a power of two."""
    return -(-size // alignment) * alignment


def alignment_of(position: int) -> int:
    """The largest power of two that divides a position, up to a page."""
    return min(position & -position, _MAX_ALIGNMENT)
