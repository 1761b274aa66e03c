"""The memory layout of a program as values: what the file declares, without the file.

A `ProgramLayout` that breaks a rule of docs/checks.md cannot be made: its constructor, and reading
it from JSON, raise `pydantic.ValidationError` with the path and the sentence of the first broken
rule. The rules themselves are in `rules.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pte_arenas.dtypes import DTYPES
from pte_arenas.names import named
from pte_arenas.rules import check_layout
from pte_arenas.rules.tensors import quoted

Lifetime = Literal["state", "scratch"]
AccessMode = Literal["read", "write", "read_write"]
DeviceType = Literal["cpu", "cuda"]


def _in_utf8(text: str) -> str:
    text.encode()
    return text


# The widths of the file's own fields; what a value may be within them is for rules.py.
UInt8 = Annotated[int, Field(ge=0, lt=1 << 8)]
UInt32 = Annotated[int, Field(ge=0, lt=1 << 32)]
UInt64 = Annotated[int, Field(ge=0, lt=1 << 64)]
Int8 = Annotated[int, Field(ge=-(1 << 7), lt=1 << 7)]
Int32 = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Int64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Text = Annotated[str, AfterValidator(_in_utf8)]
DTypeName = Annotated[str, Field(json_schema_extra={"enum": list(DTYPES)})]


class _Layout(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ArenaSlot(_Layout):
    """A named tensor inside an arena; see `schema/program_arenas.fbs` for the fields.

    Attributes:
        fqn: Fully qualified name in the exported module, such as `decoder.k_cache`.
        dtype: Name of the element type as torch has it, such as `float32`.
        sizes: Size of each dimension in elements.
        dim_order: Dimensions from the outermost in memory to the innermost.
        offset: First byte, relative to the start of the arena.
        nbytes: Size in bytes; the product of `sizes` and the dtype's width.
        data_buffer_idx: Index of the initial value in the first mutable data segment; 0 is zeros.
    """

    fqn: Text
    dtype: DTypeName
    sizes: tuple[Int32, ...] = ()
    dim_order: tuple[UInt8, ...] = ()
    offset: UInt64
    nbytes: UInt64
    data_buffer_idx: UInt32 = 0

    @property
    def end(self) -> int:
        """The byte after the last one, relative to the start of the arena."""
        return self.offset + self.nbytes


class ArenaLayout(_Layout):
    """A block of memory owned by the program.

    Attributes:
        size: In bytes.
        alignment: Of the first byte, in bytes.
    """

    name: Text
    size: UInt64
    alignment: UInt32 = 64
    lifetime: Lifetime = "state"
    device_type: DeviceType = "cpu"
    device_index: Int8 = 0
    slots: tuple[ArenaSlot, ...] = ()

    def slot(self, fqn: str) -> ArenaSlot:
        """The slot of this name; raises `ArenaError` when there is none."""
        return named(
            f"slot of arena {quoted(self.name)}", fqn, {slot.fqn: slot for slot in self.slots}
        )


class SlotAccess(_Layout):
    """What one method does with one slot; `slot` indexes the slots of the binding's arena."""

    slot: UInt32
    mode: AccessMode


class BoundTensor(_Layout):
    """A tensor of a method that lives in bound memory.

    Attributes:
        value: Index into the execution plan's values.
        sizes: Size of each dimension in elements; the largest ones where they may vary.
        offset: First byte, relative to the start of the arena.
        nbytes: Size in bytes; the product of `sizes` and the dtype's width.
        data_buffer_idx: Index of the initial value that the plan itself gives it; 0 is none.
    """

    value: UInt32
    dtype: DTypeName
    sizes: tuple[Int32, ...]
    offset: UInt64
    nbytes: UInt64
    data_buffer_idx: UInt32 = 0


class ArenaBinding(_Layout):
    """One memory id of a method that is an arena; `arena` indexes the program's arenas."""

    memory_id: UInt32
    arena: UInt32
    accesses: tuple[SlotAccess, ...] = ()
    tensors: tuple[BoundTensor, ...] = ()

    @property
    def used_bytes(self) -> int:
        """The byte after the last one that a tensor of the method takes in the arena."""
        return max((tensor.offset + tensor.nbytes for tensor in self.tensors), default=0)


class PlannedBuffer(_Layout):
    """One planned buffer of a method, in the order of memory ids; the first has memory id 1.

    Attributes:
        size: In bytes; 0 where the memory id is bound and the program requires arenas.
        device_type: A number where the file names a device that this version does not know.
    """

    size: Int64
    device_type: DeviceType | Int8 = "cpu"
    device_index: Int8 = 0


class MethodLayout(_Layout):
    """A method's planned memory.

    Attributes:
        name: Its name.
        planned_buffers: By memory id, 1 first.
        bindings: Memory ids that are arenas.
        inputs: Which of its values are its inputs, by index.
        outputs: Which of its values are its outputs, by index.
    """

    name: Text
    planned_buffers: tuple[PlannedBuffer, ...] = ()
    bindings: tuple[ArenaBinding, ...] = ()
    inputs: tuple[Int32, ...] = ()
    outputs: tuple[Int32, ...] = ()

    @property
    def planned_bytes(self) -> int:
        """Bytes of the planned buffers that belong to this method alone."""
        bound = {binding.memory_id for binding in self.bindings}
        buffers = enumerate(self.planned_buffers, start=1)
        return sum(buffer.size for memory_id, buffer in buffers if memory_id not in bound)


class InitialData(_Layout):
    """The first mutable data segment, which holds initial values.

    Attributes:
        size: Bytes in the segment.
        offsets: Where each initial value begins; entry 0 is reserved.
    """

    size: UInt64
    offsets: tuple[UInt64, ...] = ()


class ProgramLayout(_Layout):
    """The memory layout of a whole program."""

    format: UInt32 = 1
    required_features: tuple[Text, ...] = ()
    arenas: tuple[ArenaLayout, ...] = ()
    methods: tuple[MethodLayout, ...] = ()
    initial_data: InitialData | None = None

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> ProgramLayout:
        check_layout(self)
        return self

    def arena(self, name: str) -> ArenaLayout:
        """The arena of this name; raises `ArenaError` when there is none."""
        return named("arena", name, {arena.name: arena for arena in self.arenas})

    def method(self, name: str) -> MethodLayout:
        """The method of this name; raises `ArenaError` when there is none."""
        return named("method", name, {method.name: method for method in self.methods})

    def slot(self, fqn: str) -> ArenaSlot:
        """The slot of this name in any arena; raises `ArenaError` when there is none."""
        slots = {slot.fqn: slot for arena in self.arenas for slot in arena.slots}
        return named("slot", fqn, slots)

    def _repr_html_(self) -> str:
        """For notebooks: the arenas as a picture."""
        from pte_arenas.maps.page import draw_fragment  # noqa: PLC0415

        return draw_fragment(self)

    @property
    def planned_bytes(self) -> int:
        """Bytes that the program plans: every method's own buffers, and each arena once."""
        own = sum(method.planned_bytes for method in self.methods)
        return own + sum(arena.size for arena in self.arenas)

    @property
    def unshared_bytes(self) -> int:
        """Bytes that it would plan if each method had its own copy of the arenas it binds."""
        return sum(self.unshared_by_method)

    @property
    def unshared_by_method(self) -> tuple[int, ...]:
        """Bytes that each method would plan with its own copy of the arenas it binds.

        Of a scratch arena a method needs as much less than the largest one as its tensors end
        before those of that.
        """
        used: dict[int, int] = {}
        for binding in (binding for method in self.methods for binding in method.bindings):
            used[binding.arena] = max(used.get(binding.arena, 0), binding.used_bytes)
        totals = []
        for method in self.methods:
            total = method.planned_bytes
            for binding in method.bindings:
                arena = self.arenas[binding.arena]
                total += arena.size
                if arena.lifetime == "scratch":
                    total -= used[binding.arena] - binding.used_bytes
            totals.append(total)
        return tuple(totals)
