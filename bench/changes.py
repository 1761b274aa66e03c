"""How large each part of the proposal is, by the part of ExecuTorch that it would change.

Run it as `python -m bench.changes`. Lines of code are those that are neither blank nor comment nor
docstring.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = "src/pte_arenas"


@dataclass(frozen=True)
class Part:
    """A part of the change.

    Attributes:
        where: The files of ExecuTorch.
        what: What changes in them.
        files: Patterns of the files here that do it, relative to the repository.
    """

    where: str
    what: str
    files: tuple[str, ...]

    def paths(self) -> list[Path]:
        return sorted({path for pattern in self.files for path in ROOT.glob(pattern)})

    def lines(self) -> int:
        return sum(map(code_lines, self.paths()))


def _python(*names: str) -> tuple[str, ...]:
    return tuple(f"{PYTHON}/{name}.py" for name in names)


PARTS = (
    Part(
        "`schema/program.fbs`",
        "`Program.program_arenas`, `ExecutionPlan.arena_bindings`, five tables, two enums",
        ("schema/program_arenas.fbs",),
    ),
    Part(
        "`exir/schema.py`, `exir/_serialize/`",
        "dataclasses of the tables; the checks of a layout, for `serialize_pte_binary` to call. "
        "(The prototype splices its tables into stock's bytes; that part falls away)",
        (
            *_python("layout", "dtypes", "names", "errors", "tables", "splice", "frame", "files"),
            f"{PYTHON}/rules/*.py",
        ),
    ),
    Part(
        "`exir/program/_program.py`, `exir/capture/_config.py`",
        "`ExecutorchBackendConfig.program_arenas`; `EdgeProgramManager.to_executorch` hands it on",
        _python("__init__", "declare", "_exir", "emitter", "optional", "memory"),
    ),
    Part(
        "`exir/passes/memory_planning_pass.py`, `exir/memory_planning.py`",
        "`MemoryPlanningPass.run`: slots leave the method's plan; `run_multimethod`: their "
        "offsets, in place of `share_mutable_buffers`; scratch arenas",
        _python("place", "plan", "bind", "scratch", "squeeze", "devices", "delegates"),
    ),
    Part(
        "`exir/emit/_emit_program.py`, `_emitter.py`",
        "`emit_program` writes arenas, bindings, and each initial value once",
        _python("initial"),
    ),
    Part(
        "`exir/program/` (new: several entry points)",
        "capture of bound methods of one module over one state; state in a form that lowering gets "
        "right (F18 to F36)",
        _python(
            "exporter",
            "capture",
            "python_state",
            "state",
            "assignments",
            "normalize",
            "views",
            "markers",
            "lower",
            "control_flow",
            "unprepared",
        ),
    ),
    Part(
        "`exir/passes/reinplace.py`, `kernels/portable/`",
        "state updated and read where it is, by explicit rules; kernels of scatters into their "
        "argument and of parts of it",
        (
            *_python("inplace", "kernels", "parts", "scatters"),
            "runtime/src/dimensions.h",
            "runtime/src/part_kernels.cpp",
            "runtime/src/scatter_kernels.cpp",
        ),
    ),
    Part(
        "`runtime/executor/program.cpp`, `method_meta.h`",
        "`Program::load` checks the tables; `ArenaTable` says what a program declares, as "
        "`MethodMeta` does for a method; `bind_arenas()`. No heap, no exceptions",
        (
            "runtime/src/*arena_table.cpp",
            "runtime/src/check_*.cpp",
            "runtime/src/checks.h",
            "runtime/src/bind_arenas.cpp",
            "runtime/src/message.*",
            "runtime/src/structure.*",
            "runtime/src/program_header.*",
            "runtime/src/program_reader.*",
            "runtime/src/wire.h",
            "runtime/src/element_type.*",
            "runtime/src/name_filter.h",
            "runtime/include/executorch/extension/arenas/arena_table.h",
            "runtime/include/executorch/extension/arenas/bind_arenas.h",
            "runtime/include/executorch/extension/arenas/finding.h",
            "runtime/include/executorch/extension/arenas/namespace.h",
        ),
    ),
    Part(
        "`runtime/core/hierarchical_allocator.h`, `runtime/executor/tensor_parser_exec_aten.cpp`",
        "a bit for each buffer, *kept*; `getTensorDataPtr` skips initial values there. (The "
        "prototype wraps the `DataLoader`)",
        ("runtime/src/program_loader.*", "runtime/src/initial_values.*"),
    ),
    Part(
        "`extension/module/` (new: `Session`)",
        "arenas owned, borrowed or on a device; methods loaded over them; reset, snapshot, "
        "restore, fork",
        (
            *(
                f"runtime/{place}/{name}.*"
                for place in ("src", "include/executorch/extension/arenas")
                for name in (
                    "arena_pool",
                    "arena_program",
                    "loaded_method",
                    "memory_block",
                    "method_allocator",
                    "session",
                    "session_options",
                    "session_state",
                    "snapshot",
                    "data_files",
                    "zeroed_memory",
                    "touched_pages",
                    "frozen_pages",
                )
            ),
        ),
    ),
    Part(
        "`extension/pybindings/`, `runtime/__init__.py`",
        "the same from Python, under the names of `executorch.runtime`; state files",
        ("runtime/python/*.cpp", "runtime/python/*.h", f"{PYTHON}/runtime/*.py"),
    ),
    Part(
        "`devtools/`",
        "inspect, map, diff, budget, check, run, adopt, bundled programs",
        (
            *_python(
                *("__main__", "cli", "console", "seeing", "render", "columns", "reports", "sizes"),
                *("read", "planned", "instructions", "timeline", "lifetimes", "overlap", "peak"),
                *("differences", "budgets", "checker", "runner", "bundle", "verification"),
                *("adopter", "claimed", "merge", "demo"),
            ),
            f"{PYTHON}/maps/*.py",
        ),
    ),
)


def code_lines(path: Path) -> int:
    """Counts lines with code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return len(_python_lines(text))
    without_blocks = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in without_blocks.splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def _python_lines(text: str) -> set[int]:
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped | {tokenize.ENDMARKER}:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node):
                docstring = node.body[0]
                found -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.changes", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = [(part, part.lines()) for part in PARTS]
    if options.json:
        print(json.dumps([{**asdict(part), "lines": lines} for part, lines in rows], indent=2))
        return
    print("| in ExecuTorch | what changes | lines of the prototype |\n|---|---|---|")
    for part, lines in rows:
        # Rounded, so that the document does not change with every line of code.
        print(f"| {part.where} | {part.what} | {max(round(lines, -2), 50)} |")


if __name__ == "__main__":
    main()
