"""An application over ExecuTorch's own C++ `Module`, built from the wheel; it knows no arenas."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import executorch

SOURCE = Path(__file__).with_name("stock_module.cpp")


class RefusedError(Exception):
    """ExecuTorch failed to load or to run a method; the text is the call and its error."""


def build(folder: Path) -> Path:
    """Compiles the program into a folder."""
    program = folder / "stock_module"
    (wheel,) = map(Path, executorch.__path__)
    include = wheel / "include"
    subprocess.run(
        [
            os.environ.get("CXX", "c++"),
            "-std=c++17",
            "-DC10_USING_CUSTOM_GENERATED_MACROS",
            f"-I{include}",
            f"-I{include / 'executorch/runtime/core/portable_type/c10'}",
            SOURCE,
            "-o",
            program,
            f"-L{wheel / 'lib'}",
            "-Wl,--no-as-needed",
            "-lexecutorch",
            "-lexecutorch_kernels_optimized",
            "-lexecutorch_threadpool",
            f"-Wl,-rpath,{wheel / 'lib'}",
        ],
        check=True,
    )
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
