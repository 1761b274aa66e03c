# ruff: noqa: N999
# As nanobind's stubgen writes it; tests/test_runtime_stub.py tells when it is out of date.
"""The C++ runtime of pte_arenas; use pte_arenas.runtime."""

import enum
from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import Buffer

def verify(data: Buffer) -> None:
    """Checks the structure of a program, before anything reads it.

    Raises:
        InvalidProgramError: The data is damaged or truncated.
    """

def check(data: Buffer) -> None:
    """Checks every rule of docs/checks.md, in C++.

    Raises:
        InvalidProgramError: With the first broken rule.
    """

class TensorInfo:
    """What a program says of one of its tensors."""

    def sizes(self) -> tuple[int, ...]:
        """Size of each dimension; the largest where it may vary."""

    def dtype(self) -> int:
        """Code of the element type in ExecuTorch's schema (ScalarType)."""

    def dtype_name(self) -> str:
        """Element type as torch spells it, such as `float32`."""

    def is_memory_planned(self) -> bool:
        """Whether the program has memory for it."""

    def nbytes(self) -> int:
        """Size in bytes; the largest where the shape may vary."""

    def name(self) -> str:
        """Fully qualified name, or an empty string."""

    def __repr__(self) -> str: ...

class MethodMeta:
    """What a program says of one of its methods."""

    def name(self) -> str:
        """Name of the method."""

    def num_inputs(self) -> int:
        """Number of inputs."""

    def num_outputs(self) -> int:
        """Number of outputs."""

    def num_attributes(self) -> int:
        """Number of named tensors."""

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """The tensor at one place of the inputs."""

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """The tensor at one place of the outputs."""

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """One of the named tensors."""

    def __repr__(self) -> str: ...

class LoadMode(enum.Enum):
    """How the bytes of a file come into memory."""

    Mmap = 0
    """Pages of the file, read when touched."""

    MmapUseMlock = 1
    """The same, read and locked; an error where the system forbids it."""

    MmapUseMlockIgnoreErrors = 2
    """The same, locked where the system allows it."""

    MmapUseMadvise = 3
    """Pages of the file, which the system is told to read ahead."""

    File = 4
    """Read into memory of the process."""

class Verification(enum.Enum):
    """What ExecuTorch verifies when it loads a program."""

    Minimal = 0
    """That it is a program."""

    InternalConsistency = 1
    """That its tables lie inside it."""

def backend_names() -> list[str]:
    """Names of the registered backends."""

def is_backend_available(name: str) -> bool:
    """Whether a backend is registered and can run here."""

def operator_names() -> set[str]:
    """Names of the operators that have a kernel."""

class Snapshot:
    """The state of a session at one moment."""

    def read(self, file: int, path: str, slots: Sequence[tuple[str, str, int]]) -> bool:
        """Fills slots from an open file: arena, slot, offset. Tells whether it has them all."""

    def largest_byte(self, arena: str, slot: str) -> int:
        """The largest byte of a slot; 0 if it has none."""

class Program:
    """A checked program."""

    @staticmethod
    def from_file(
        path: bytes,
        data_files: Sequence[bytes],
        mode: LoadMode,
        is_unshared: bool,
        verification: Verification,
    ) -> Program:
        """Reads a file; paths are encoded as `os.fsencode` does."""

    @staticmethod
    def from_bytes(
        data: bytes,
        data_files: Sequence[bytes],
        mode: LoadMode,
        is_unshared: bool,
        verification: Verification,
    ) -> Program:
        """Reads a program from memory, which it keeps."""

    def method_names(self) -> list[str]:
        """Names of the methods, in the order of the file."""

    def arenas(self) -> list[dict[str, Any]]:
        """Values for pte_arenas.layout.ArenaLayout."""

    def metadata(self, method: str) -> MethodMeta:
        """What the program says of a method."""

    def session(
        self,
        arenas: dict[str, Any],
        keep: bool,
        scratch_from: Session | None,
        backend_options: dict[str, dict[str, bool | int | str]],
        debug_buffer_size: int | None,
    ) -> Session:
        """Allocates or borrows the arenas and gives them their initial values."""

    def blank_snapshot(self) -> Snapshot:
        """A snapshot of zeros."""

    def nbytes(self) -> int:
        """Size of the program's file."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the program's file."""

class Session:
    """Arenas and the methods loaded over them."""

    def load_method(self, name: str) -> Method:
        """Loads a method, unless it is loaded."""

    def unload_method(self, name: str) -> None:
        """Frees a method and the memory that is its own."""

    def execute(self, name: str, inputs: Sequence[Any], copy_outputs: bool) -> list[Any]:
        """Runs a method, and loads it if need be."""

    def loaded_methods(self) -> list[str]:
        """Names of the loaded methods, in the order of the file."""

    def reset(self, arena: str | None = None, slot: str | None = None) -> None:
        """Gives initial values again."""

    def take_etdump(self) -> tuple[bytes, bytes, bool] | None:
        """Events since the last time: ETDump, values, whether some lack."""

    def snapshot(self, into: Snapshot | None) -> Snapshot:
        """Copies the state, into the memory of another snapshot or a new one."""

    def restore(self, snapshot: Snapshot, arenas: Sequence[str]) -> None:
        """Gives arenas the state of a snapshot."""

    def fork(self, copy_on_write: bool) -> Session:
        """A session of equal state."""

    def write(self, file: int, path: str, head: bytes, slots: Sequence[tuple[str, str]]) -> None:
        """Writes the head of an open file and the bytes of slots behind it."""

    def slot_tensor(self, arena: str, slot: str) -> torch.Tensor:
        """A view of a slot, which keeps the session alive."""

    def clone_slot(self, arena: str, slot: str) -> torch.Tensor:
        """A tensor of the caller's with the slot's elements."""

    def copy_to_slot(self, arena: str, slot: str, tensor: torch.Tensor) -> None:
        """Copies the elements of a tensor into the slot."""

class Method:
    """A method of a session."""

    @property
    def name(self) -> str:
        """Name of the method."""

    @property
    def metadata(self) -> MethodMeta:
        """What the program says of the method."""

    def execute(self, inputs: Sequence[Any], copy_outputs: bool = True) -> list[Any]:
        """Runs the method; the outputs are the caller's own."""
