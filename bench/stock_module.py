"""An application over ExecuTorch's own C++ `Module`, built from the wheel; it knows no arenas."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.compiling import compile_cpp

SOURCE = Path(__file__).with_name("stock_module.cpp")


class RefusedError(Exception):
    """ExecuTorch failed to load or to run a method; the text is the call and its error."""


def build(folder: Path) -> Path:
    """Compiles the program into a folder."""
    program = folder / "stock_module"
    kernels = ["-lexecutorch_kernels_optimized", "-lexecutorch_threadpool"]
    compile_cpp(program, [SOURCE], [], ["-Wl,--no-as-needed", "-lexecutorch", *kernels])
    return program


def run(program: Path, path: Path, memory: str, calls: Sequence[str]) -> list[list[list[float]]]:
    """Makes calls in a process of their own.

    Args:
        program: What `build` made.
        path: Of a `.pte` file.
        memory: `shared` for `share_memory_arenas=true`, else `private`.
        calls: `load:METHOD` or `run:METHOD:VALUE`, where the value fills all inputs.

    Returns:
        For each call that runs a method the elements of each output.

    Raises:
        RefusedError: A call failed.
    """
    done = subprocess.run(
        [program, path, memory, *calls], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RefusedError(done.stderr.splitlines()[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]
