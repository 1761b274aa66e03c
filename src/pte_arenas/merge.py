"""Finds out which slots the tensors in a memory are that methods are said to share.

A program without arenas has the tensors of each method alone. Where the memory is shared, every
method has the same ones at the same places, besides views of them; what contradicts that is
refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pte_arenas.errors import ArenaError
from pte_arenas.layout import ArenaSlot, BoundTensor
from pte_arenas.rules.tensors import listed, quoted, span

_WAY_OUT = "where methods do not share the memory, export again with pte_arenas.export"

SameValue = Callable[[int, int, int], bool]
"""Whether two initial values, given by their indices, agree in their first so many bytes."""


@dataclass(frozen=True)
class StateTensor:
    """A tensor of a method in the memory.

    Attributes:
        where: Its path in the file, such as `execution_plan[0].values[3]`.
        layout: Where it lies and of what kind it is.
        dim_order: Dimensions from the outermost in memory to the innermost.
        name: Fully qualified name of the buffer, where the file has it.
    """

    where: str
    layout: BoundTensor
    dim_order: tuple[int, ...]
    name: str | None = None

    @property
    def begin(self) -> int:
        """First byte."""
        return self.layout.offset

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.layout.offset + self.layout.nbytes

    @property
    def bytes(self) -> str:
        """The byte range, for messages."""
        return span(self.begin, self.layout.nbytes)

    def kind(self, *, with_order: bool = False) -> str:
        """Dtype and sizes, for messages."""
        order = f" in dim order {listed(self.dim_order)}" if with_order else ""
        return f"{self.layout.dtype} {listed(self.layout.sizes)}{order}"


@dataclass
class _Group:
    """The tensor that takes the most bytes at a place, and the others inside it."""

    owner: StateTensor
    others: list[StateTensor] = field(default_factory=list)

    @property
    def all(self) -> list[StateTensor]:
        return [self.owner, *self.others]


def contradiction(where: str, expected: str, found: str) -> ArenaError:
    """An error that says how the file differs from one whose methods share the memory."""
    return ArenaError(f"{where}: expected {expected} but found {found}; {_WAY_OUT}")


def merge_slots(
    methods: Sequence[Sequence[StateTensor]], same_value: SameValue
) -> tuple[ArenaSlot, ...]:
    """Merges the tensors of all methods into slots, in the order of their offsets.

    Args:
        methods: Of each method its tensors in the memory, in the order of the file: a buffer comes
            before its views.
        same_value: Compares initial values.

    Raises:
        ArenaError: The methods cannot share the memory.
    """
    groups: dict[tuple[int, int], _Group] = {}
    for tensors in methods:
        for group in _groups([tensor for tensor in tensors if tensor.layout.nbytes]):
            owner = group.owner
            known = groups.setdefault((owner.begin, owner.end), group)
            if known is not group:
                _check_kind(known.owner, owner)
                known.others += group.all
    for before, after in pairwise(sorted(groups.values(), key=lambda group: group.owner.begin)):
        if after.owner.begin < before.owner.end:
            _refuse_overlap(before.owner, after.owner)
    _add_empty(groups, methods)
    merged = sorted(groups.values(), key=lambda group: (group.owner.begin, group.owner.end))
    names = _names(merged)
    return tuple(_slot(group, name, same_value) for group, name in zip(merged, names, strict=True))


def slots_of(tensors: Sequence[StateTensor], slots: Sequence[ArenaSlot]) -> list[int]:
    """The slots that the tensors of one method lie in, in order, each once."""
    begins = [slot.offset for slot in slots]
    return sorted({bisect_right(begins, tensor.begin) - 1 for tensor in tensors})


def _groups(tensors: Sequence[StateTensor]) -> list[_Group]:
    """Groups the tensors of one method: each is apart from another one or inside it."""
    groups: list[_Group] = []
    # Sorting is stable: of equal ranges the first in the file, which is the buffer, stays first.
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, -tensor.end)):
        if not groups or tensor.begin >= groups[-1].owner.end:
            groups.append(_Group(tensor))
            continue
        if tensor.end > groups[-1].owner.end:
            _refuse_overlap(groups[-1].owner, tensor)
        groups[-1].others.append(tensor)
    return groups


def _refuse_overlap(owner: StateTensor, tensor: StateTensor) -> None:
    raise contradiction(
        tensor.where, f"the bytes {owner.bytes} of {owner.where} or bytes apart", tensor.bytes
    )


def _check_kind(known: StateTensor, tensor: StateTensor) -> None:
    if known.kind(with_order=True) != tensor.kind(with_order=True):
        with_order = known.kind() == tensor.kind()
        raise contradiction(
            tensor.where,
            f"{known.kind(with_order=with_order)} as in {known.where}",
            tensor.kind(with_order=with_order),
        )


def _add_empty(
    groups: dict[tuple[int, int], _Group], methods: Sequence[Sequence[StateTensor]]
) -> None:
    """Adds tensors without bytes: slots of their own unless they lie in one or on its border."""
    owners = [group.owner for group in groups.values()]
    for tensor in (tensor for tensors in methods for tensor in tensors):
        if tensor.layout.nbytes or any(o.begin <= tensor.begin <= o.end for o in owners):
            continue
        known = groups.setdefault((tensor.begin, tensor.end), _Group(tensor))
        _check_kind(known.owner, tensor)


def _names(groups: Sequence[_Group]) -> list[str]:
    places: dict[str, StateTensor] = {}
    found: list[str | None] = []
    for group in groups:
        named = [tensor for tensor in group.all if tensor.name]
        for tensor in named[1:]:
            if tensor.name != named[0].name:
                raise contradiction(
                    tensor.where,
                    f"the name {quoted(named[0].name or '')} as in {named[0].where}",
                    quoted(tensor.name or ""),
                )
        name = named[0].name if named else None
        found.append(name)
        if name is None:
            continue
        other = places.setdefault(name, named[0])
        if other is not named[0]:
            raise contradiction(
                named[0].where,
                f"{quoted(name)} at {other.bytes} as in {other.where}",
                f"it at {named[0].bytes}",
            )
    return [name or _free_name(index, places) for index, name in enumerate(found)]


def _free_name(index: int, taken: dict[str, StateTensor]) -> str:
    name = f"slot_{index}"
    while name in taken:
        name += "_"
    return name


def _slot(group: _Group, name: str, same_value: SameValue) -> ArenaSlot:
    owner = group.owner
    valued = [tensor for tensor in group.all if tensor.layout.data_buffer_idx]
    for tensor in valued:
        index, first = tensor.layout.data_buffer_idx, valued[0]
        if tensor.layout.nbytes != owner.layout.nbytes:
            raise contradiction(
                f"{tensor.where}.data_buffer_idx",
                f"no initial value for a part of {owner.where}",
                str(index),
            )
        if not same_value(first.layout.data_buffer_idx, index, owner.layout.nbytes):
            raise contradiction(
                f"{tensor.where}.data_buffer_idx",
                f"the initial value of {first.where}",
                f"other bytes at index {index}",
            )
    return ArenaSlot(
        fqn=name,
        dtype=owner.layout.dtype,
        sizes=owner.layout.sizes,
        dim_order=owner.dim_order,
        offset=owner.begin,
        nbytes=owner.layout.nbytes,
        data_buffer_idx=valued[0].layout.data_buffer_idx if valued else 0,
    )
