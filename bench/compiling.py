"""Compiles C++ against the ExecuTorch of the installed wheel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import executorch

(WHEEL,) = map(Path, executorch.__path__)
HEADERS = [
    "-std=c++17",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
    f"-I{WHEEL / 'include'}",
    f"-I{WHEEL / 'include/executorch/runtime/core/portable_type/c10'}",
]
"""What ExecuTorch's headers need."""


def compile_cpp(
    target: Path, sources: Sequence[Path], options: Sequence[str], libraries: Sequence[str]
) -> None:
    """Compiles a program or a library that finds the wheel's libraries when it runs.

    Args:
        target: The file to make.
        sources: C++ files.
        options: Of the compiler, besides those that ExecuTorch's headers need.
        libraries: Linker options that come last, such as `-lexecutorch`.
    """
    libs = WHEEL / "lib"
    command: list[str | Path] = [os.environ.get("CXX", "c++"), *HEADERS, *options, *sources]
    command += ["-o", target, f"-L{libs}", *libraries, f"-Wl,-rpath,{libs}"]
    subprocess.run(command, check=True)
