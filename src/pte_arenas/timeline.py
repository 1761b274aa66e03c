"""What a program's methods execute, and when each planned tensor holds its bytes, as values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pte_arenas.layout import Text
from pte_arenas.names import named

InstructionKind = Literal["kernel", "delegate", "move", "jump", "free"]
TensorRole = Literal["state", "input", "output", "activation"]


class _Timeline(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Instruction(_Timeline):
    """One instruction of a method.

    Attributes:
        kind: What it does.
        name: Operator with its overload, such as `aten::add.out`; id of a delegate's backend;
            empty for the other kinds.
        destination: Where a jump goes: index of an instruction, or their number for the end.
    """

    kind: InstructionKind
    name: Text = ""
    destination: int | None = None

    @property
    def label(self) -> str:
        """Kind and name as people read them."""
        if self.kind == "jump":
            return f"jump to {self.destination} if false"
        return self.name if self.kind == "kernel" else f"{self.kind} {self.name}".rstrip()


class TensorLifetime(_Timeline):
    """A planned tensor: the bytes that it takes, and the instructions between which it holds them.

    Attributes:
        value: Index into the execution plan's values.
        name: Fully qualified name of a buffer, where the file has it; else empty.
        memory_id: The planned memory that it lies in, 1-based.
        offset: First byte in that memory.
        nbytes: Size in bytes; the product of `sizes` and the dtype's width.
        sizes: Size of each dimension in elements; the largest ones where they may vary.
        role: `state` keeps its value from one execution to the next, `input` is set before the
            first instruction, `output` is read after the last one (also where it is an input).
        begin: First instruction at which it holds its bytes.
        end: The one behind the last. As large as `begin` where nothing ever uses the tensor.
        uses: Instructions that read or write it, directly or in a list.
    """

    value: int
    name: Text = ""
    memory_id: int
    offset: int
    nbytes: int
    dtype: str
    sizes: tuple[int, ...] = ()
    role: TensorRole = "activation"
    begin: int
    end: int
    uses: tuple[int, ...] = ()


class MethodTimeline(_Timeline):
    """The instructions of a method, those of all chains in a row, and its planned tensors."""

    name: Text
    instructions: tuple[Instruction, ...] = ()
    tensors: tuple[TensorLifetime, ...] = ()

    @property
    def length(self) -> int:
        """Number of instructions; 1 for a method without any, whose inputs take memory too."""
        return max(1, len(self.instructions))

    def label(self, index: int) -> str:
        """An instruction as people read it, with its index."""
        if not self.instructions:
            return "no instruction"
        return f"{index} {self.instructions[index].label}"

    def describe(self, tensor: TensorLifetime) -> str:
        """A tensor's name; where it has none its role and value, and what makes it."""
        if tensor.name:
            return tensor.name
        made = tensor.role in {"activation", "output"} and tensor.begin in tensor.uses[:1]
        by = f", made by {self.label(tensor.uses[0])}" if made else ""
        return f"{tensor.role} {tensor.value}{by}"

    def tensors_of(self, memory_ids: Iterable[int]) -> tuple[TensorLifetime, ...]:
        """The tensors that lie in some memory ids."""
        wanted = set(memory_ids)
        return tuple(tensor for tensor in self.tensors if tensor.memory_id in wanted)


class ProgramTimeline(_Timeline):
    """The timelines of a program's methods, in the order of the file."""

    methods: tuple[MethodTimeline, ...] = ()

    def method(self, name: str) -> MethodTimeline:
        """The timeline of the method of this name; raises `ArenaError` when there is none."""
        return named("method", name, {method.name: method for method in self.methods})
