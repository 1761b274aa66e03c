"""Bundled programs run over a session, and what is wrong with one is found."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program import schema
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    _bundled_program_schema_to_flatbuffer,
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir.scalar_type import ScalarType
from runtime_programs import ONES, Counter, counter_bytes
from typer.testing import CliRunner

import pte_arenas as pa
from pte_arenas.bundle import read_bundle
from pte_arenas.cli import app

BUMP = ((ONES,), (ONES * 2,))


def _suites(*, wrong: float = 0.0, kept: bool = False) -> list[MethodTestSuite]:
    """What eager says, method by method; `bump` comes before `get`, as the file sorts them."""
    module = Counter()
    bumps = [MethodTestCase(args, [module.bump(args[0]).clone()]) for args in map(_one, BUMP)]
    bumps[1].expected_outputs[0].view(-1)[3] += wrong
    if not kept:
        module = Counter()
    gets = [MethodTestCase((), [value.clone() for value in module.get()])]
    return [MethodTestSuite("bump", bumps), MethodTestSuite("get", gets)]


def _one(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(arg.clone() for arg in args)


@functools.cache
def _bundle(**options: Any) -> bytes:
    suites = _suites(**options)
    return _bytes_of(suites)


def _bytes_of(suites: list[MethodTestSuite]) -> bytes:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".pte") as file:
        file.write(counter_bytes())
        file.flush()
        bundled = BundledProgram(None, suites, pte_file_path=file.name)
        data: bytes = serialize_from_bundled_program_to_flatbuffer(bundled)
    return data


def test_suites_start_fresh() -> None:
    report = pa.verify(_bundle())
    assert report.passed
    assert [(case.suite, case.method, case.case) for case in report.cases] == [
        (0, "bump", 0),
        (0, "bump", 1),
        (1, "get", 0),
    ]
    assert [case.largest_difference for case in report.cases] == [0.0, 0.0, 0.0]
    kept = pa.verify(_bundle(), keep_state=True)
    assert not kept.passed
    assert kept.cases[2].failure == (
        "output 0: expected 5.0 at [0, 0] but found 8.0; 6 of 6 elements differ; "
        "output 1: expected 0 at [] but found 2; 1 of 1 elements differ"
    )


def test_suites_go_on_where_state_is_kept() -> None:
    assert pa.verify(_bundle(kept=True), keep_state=True).passed
    assert not pa.verify(_bundle(kept=True)).passed


def test_tolerances() -> None:
    wrong = _bundle(wrong=0.5)
    report = pa.verify(wrong)
    assert [case.failure for case in report.cases] == [
        None,
        "output 0: expected 8.5 at [1, 0] but found 8.0; 1 of 6 elements differ",
        None,
    ]
    assert report.cases[1].largest_difference == 0.5
    assert pa.verify(wrong, atol=0.5).passed
    assert pa.verify(wrong, rtol=0.06).passed
    assert not pa.verify(wrong, rtol=0.05).passed


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        pytest.param(
            MethodTestCase((torch.ones(3),), [ONES]),
            "bump: input 0: expected float32 of sizes (2, 3) but found float32 of sizes (3,)",
            id="input",
        ),
        pytest.param(
            MethodTestCase((ONES,), [torch.full((3, 2), 6.0)]),
            "output 0: expected float32 of sizes [3, 2] but found float32 of sizes [2, 3]",
            id="sizes",
        ),
        pytest.param(MethodTestCase((ONES,), []), "expected 0 outputs but found 1", id="count"),
        pytest.param(
            MethodTestCase((ONES,), [torch.full((2, 3), torch.nan)]),
            "output 0: expected nan at [0, 0] but found 6.0; 6 of 6 elements differ",
            id="nan",
        ),
    ],
)
def test_failures(case: MethodTestCase, failure: str) -> None:
    (result,) = pa.verify(_bytes_of([MethodTestSuite("bump", [case])])).cases
    assert result.failure == failure


def test_a_bundle_without_cases_does_not_pass() -> None:
    assert not pa.verify(_bytes_of([])).passed


def test_values_come_back_as_they_were() -> None:
    inputs = (torch.rand(2, 3), 3, 0.1, True, torch.zeros(0, 2), torch.tensor(7))
    bundle = read_bundle(_bytes_of([MethodTestSuite("get", [MethodTestCase(inputs, [])])]))
    assert bundle.program == counter_bytes()
    have = bundle.suites[0].cases[0].inputs
    assert [type(value) for value in have] == [type(value) for value in inputs]
    torch.testing.assert_close(have, inputs, rtol=0, atol=0)


def test_damaged_bundles() -> None:
    data = _bundle()
    for damaged in (b"", data[:4], data[:100], data[100:]):
        with pytest.raises(pa.InvalidProgramError) as error:
            pa.verify(damaged)
        assert str(error.value) == (
            "bundle: expected a well-formed bundled program but found damaged or truncated data"
        )


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        pytest.param(
            schema.Tensor(ScalarType.FLOAT, [2], bytes(16), [0]),
            "data: expected 8 bytes for sizes [2] of float32 but found 16",
            id="bytes",
        ),
        pytest.param(
            schema.Tensor(ScalarType.FLOAT, [1, 2], bytes(8), [0, 0]),
            "dim_order: expected a permutation of 0 to 2 (exclusive) but found [0, 0]",
            id="order",
        ),
        pytest.param(
            schema.Tensor(ScalarType.COMPLEX64, [1], bytes(8), [0]),
            "scalar_type: expected a known scalar type but found 9",
            id="type",
        ),
    ],
)
def test_tensors_that_cannot_be(tensor: Any, message: str) -> None:
    case = schema.BundledMethodTestCase([schema.Value(tensor)], [])
    suites = [schema.BundledMethodTestSuite("get", [case])]
    bundle = schema.BundledProgram(0, suites, counter_bytes())
    with pytest.raises(pa.InvalidProgramError) as error:
        pa.verify(_bundled_program_schema_to_flatbuffer(bundle))
    assert str(error.value) == f"suites[0].cases[0].inputs[0].{message}"


def test_command(tmp_path: Path) -> None:
    runner = CliRunner()
    path = tmp_path / "counter.bpte"
    path.write_bytes(_bundle())
    done = runner.invoke(app, ["verify", str(path)])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == (
        "counter.bpte  3 of 3 cases passed, rtol 1e-05, atol 1e-08"
    )
    path.write_bytes(_bundle(wrong=0.5))
    done = runner.invoke(app, ["verify", str(path), "--json", "--rtol", "0.001"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["passed"], report["rtol"], len(report["cases"])) == (False, 0.001, 3)
    assert runner.invoke(app, ["verify", str(path), "--atol", "0.5"]).exit_code == 0
    done = runner.invoke(app, ["verify", str(tmp_path / "absent.bpte")])
    assert (done.exit_code, done.stderr) == (
        1,
        f"{tmp_path / 'absent.bpte'}: no such file or directory\n",
    )


def test_a_program_itself_is_no_bundle() -> None:
    with pytest.raises(
        pa.InvalidProgramError, match=r"expected a bundled program, .* but found a program$"
    ):
        pa.verify(counter_bytes())
