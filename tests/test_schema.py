"""The schema extension: composing, what it refuses, and what later schemas make of our files."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import compose
import flatbuffers
import pytest

from pte_arenas.layout import ArenaBinding, ArenaLayout, ArenaSlot, SlotAccess
from pte_arenas.splice import splice

ROOT = Path(compose.__file__).resolve().parent.parent


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A copy of the installed ExecuTorch's schema, to change."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    for name in ("program.fbs", "scalar_type.fbs"):
        shutil.copy(compose.installed_schema() / name, folder / name)
    return folder


def edit(schema: Path, pattern: str, replacement: str) -> None:
    """Changes one place in a schema."""
    text, count = re.subn(pattern, replacement, schema.read_text(), flags=re.DOTALL)
    assert count == 1
    schema.write_text(text)


def append(schema: Path, table: str, fields: str) -> None:
    """Adds fields at the end of a table."""
    edit(schema, rf"(table {table} \{{.*?\n)\}}", rf"\1{fields}\n}}")


def generate(upstream: Path, out: Path, namespace: str, extension: compose.Extension) -> ModuleType:
    """Generates and imports the Python readers of a schema; returns the root's module."""
    out.mkdir()
    composed = compose.compose(
        compose.read_upstream(upstream / "program.fbs"), extension, namespace
    )
    (out / "program.fbs").write_text(composed)
    compose.generate_readers(out / "program.fbs", out)
    importlib.invalidate_caches()
    return importlib.import_module(f"{namespace}.Program")


def test_installed_executorch_takes_our_fields(tmp_path: Path) -> None:
    compose.build(tmp_path, compose.installed_schema())
    composed = (tmp_path / "program.fbs").read_text()
    assert "  version: uint (id: 0);\n" in composed
    assert (
        "  named_data: [NamedData] (id: 7);\n  reserved_8: ubyte (id: 8, deprecated);\n" in composed
    )
    assert "  program_arenas: ProgramArenas (id: 128);\n}" in composed
    assert "  arena_bindings: [ArenaBinding] (id: 128);\n}" in composed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            lambda schema: edit(
                schema,
                r"  inputs: \[int\];(\n[^;]*)  outputs: \[int\];(\n[^;]*chains)",
                r"  outputs: [int];\1  inputs: [int];\2",
            ),
            "program.fbs: expected an extension of the installed ExecuTorch's schema but found "
            "'offsets differ for field: executorch_flatbuffer.ExecutionPlan.outputs'",
            id="reordered",
        ),
        pytest.param(
            lambda schema: append(schema, "Program", "  program_arenas: string;"),
            "Program.program_arenas: expected a name that ExecuTorch's table does not use but "
            "found its field program_arenas",
            id="our-name",
        ),
        pytest.param(
            lambda schema: append(schema, "ExecutionPlan", "  other: uint (id: 128);"),
            "ExecutionPlan.arena_bindings: expected an id above ExecuTorch's own but found 128 "
            "where its field other has 128",
            id="our-id",
        ),
        pytest.param(
            lambda schema: append(
                schema, "Program", "\n".join(f"  other_{i}: uint;" for i in range(8, 129))
            ),
            "Program.program_arenas: expected an id above ExecuTorch's own but found 128 where its "
            "field other_128 has 128",
            id="our-id-implied",
        ),
        pytest.param(
            lambda schema: edit(schema, "table ExecutionPlan ", "table Plan "),
            "ExecutionPlan: expected a table of ExecuTorch's schema but found none",
            id="table-removed",
        ),
        pytest.param(
            lambda schema: edit(
                schema, "root_type Program;", "table ArenaSlot {}\nroot_type Program;"
            ),
            "ArenaSlot: expected a name that ExecuTorch's schema does not use but found its table "
            "ArenaSlot",
            id="our-table",
        ),
    ],
)
def test_incompatible_upstream_is_refused(
    change: Callable[[Path], None], sentence: str, upstream: Path, tmp_path: Path
) -> None:
    change(upstream / "program.fbs")
    with pytest.raises(compose.IncompatibleSchemaError) as refusal:
        compose.build(tmp_path / "out", upstream)
    assert str(refusal.value) == sentence


def test_incompatible_upstream_stops_the_build(upstream: Path, tmp_path: Path) -> None:
    cmake = pytest.importorskip("cmake")
    append(upstream / "program.fbs", "Program", "  program_arenas: string;")
    done = subprocess.run(
        [
            *(Path(cmake.CMAKE_BIN_DIR) / "cmake", "-S", ROOT, "-B", tmp_path / "build"),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DPTE_ARENAS_UPSTREAM_SCHEMA={upstream}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert (
        "schema: Program.program_arenas: expected a name that ExecuTorch's table does not use but "
        "found its field program_arenas" in " ".join(done.stderr.split())
    )


@pytest.mark.parametrize(
    ("fields", "numbered"),
    [
        pytest.param("a: int; b: bool = true;", ["a: int (id: 0)", "b: bool = true (id: 1)"]),
        pytest.param("u: U; v: [U]; a: int;", ["u: U (id: 1)", "v: [U] (id: 3)", "a: int (id: 4)"]),
        pytest.param("a: int (id: 1); b: int (id: 0);", ["a: int (id: 1)", "b: int (id: 0)"]),
        pytest.param("a: int (deprecated); /* b: c; */", ["a: int (id: 0, deprecated)"]),
    ],
)
def test_upstream_fields_keep_their_ids(fields: str, numbered: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.fbs").write_text(
        f"union U {{ T }} table T {{}} table Program {{ {fields} }}"
    )
    ours = compose.NewField(table="Program", name="x", type="T", id=9, comment="Ours.")
    schema = compose.read_upstream(tmp_path / "program.fbs")
    lines = compose.compose(schema, compose.Extension("", (ours,)), "n").splitlines()
    assert [line.strip(" ;") for line in lines if re.match(r"  [a-w]:", line)] == numbered
    assert lines[-5].strip() == "reserved_8: ubyte (id: 8, deprecated);"
    assert lines[-4:-2] == ["  // Ours.", "  x: T (id: 9);"]


def our_program() -> bytes:
    """A program of ours with one method, written by the generated code and spliced."""
    program_t = importlib.import_module("pte_arenas.wire.Program").ProgramT
    plan_t = importlib.import_module("pte_arenas.wire.ExecutionPlan").ExecutionPlanT
    builder = flatbuffers.Builder()
    plan = plan_t(name="step", inputs=[3, 4], outputs=[5], nonConstBufferSizes=[0, 0, 32])
    root = program_t(executionPlan=[plan], segments=[], namedData=[]).Pack(builder)
    builder.Finish(root, file_identifier=b"ET12")
    slot = ArenaSlot(fqn="a", dtype="int64", sizes=(4,), dim_order=(0,), offset=0, nbytes=32)
    binding = ArenaBinding(memory_id=2, arena=0, accesses=(SlotAccess(slot=0, mode="write"),))
    arena = ArenaLayout(name="state", size=32, slots=(slot,))
    return splice(bytes(builder.Output()), [arena], {"step": [binding]})


def check_old_fields(program: Any) -> None:
    plan = program.ExecutionPlan(0)
    assert plan.Name() == b"step"
    assert plan.InputsAsNumpy().tolist() == [3, 4]
    assert plan.OutputsAsNumpy().tolist() == [5]
    assert plan.NonConstBufferSizesAsNumpy().tolist() == [0, 0, 32]


def test_file_reads_cleanly_under_a_schema_with_other_fields(
    upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("Program", "ExecutionPlan"):
        append(
            upstream / "program.fbs", table, "  later: string;\n  tables: [Frame];\n  number: uint;"
        )
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    nothing = compose.Extension(tables="", fields=())
    theirs = generate(upstream, tmp_path / "theirs", "later_upstream", nothing)
    ours = generate(upstream, tmp_path / "ours", "later_ours", compose.read_extension())

    data = our_program()
    for module in (theirs, ours):
        program = module.Program.GetRootAs(data)
        check_old_fields(program)
        for table in (program, program.ExecutionPlan(0)):
            assert (table.Later(), table.TablesLength(), table.Number()) == (None, 0, 0)
    binding = program.ExecutionPlan(0).ArenaBindings(0)
    assert (binding.MemoryId(), binding.Accesses(0).Mode()) == (2, 1)
    assert program.ProgramArenas().Arenas(0).Slots(0).FullyQualifiedName() == b"a"


def test_installed_readers_are_those_of_the_sources(tmp_path: Path) -> None:
    compose.build(tmp_path, compose.installed_schema())
    (installed,) = map(Path, importlib.import_module("pte_arenas.wire").__path__)
    generated = sorted((tmp_path / "pte_arenas" / "wire").glob("*.py"))
    assert len(generated) > 40
    for file in generated:
        assert (installed / file.name).read_text() == file.read_text()
        importlib.import_module(f"pte_arenas.wire.{file.stem}".removesuffix(".__init__"))


def test_every_field_of_ours_has_a_comment() -> None:
    previous = ""
    fields = []
    for line in map(str.strip, (ROOT / "schema" / "program_arenas.fbs").read_text().splitlines()):
        if match := re.match(r"(?:table|enum)?\s*(\w+)\s*[:{=]", line):
            fields.append((match[1], previous.startswith("//")))
        previous = line
    assert len(fields) > 20
    assert [name for name, commented in fields if not commented] == []
