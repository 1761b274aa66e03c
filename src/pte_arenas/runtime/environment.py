"""The names of `executorch.runtime`: the one `Runtime`, and what the process has registered."""

from __future__ import annotations

import functools
from typing import Any

from pte_arenas.runtime import _C
from pte_arenas.runtime.program import Program, Source, load_program


class BackendRegistry:
    """The backends of this process, `executorch.runtime`'s and these."""

    @property
    def registered_backend_names(self) -> list[str]:
        """Names of the registered backends."""
        return _C.backend_names()

    def is_available(self, backend_name: str) -> bool:
        """Whether a backend is registered and can run here."""
        return _C.is_backend_available(backend_name)


class OperatorRegistry:
    """The operators of this process, `executorch.runtime`'s and these."""

    @property
    def operator_names(self) -> set[str]:
        """Names of the operators that have a kernel, such as `aten::add.out`."""
        return _C.operator_names()


class Runtime:
    """What `executorch.runtime.Runtime` is: loads programs, and tells what can run them.

    Attributes:
        backend_registry: The backends of this process.
        operator_registry: The operators of this process.
    """

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.cache
    def get() -> Runtime:
        """The one of this process."""
        return Runtime()

    def load_program(self, data: Source, **options: Any) -> Program:
        """Loads a program; see `pte_arenas.runtime.load_program`."""
        return load_program(data, **options)
