"""Runs the test suites of a bundled program over a session and compares what comes out."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict

from pte_arenas.bundle import TestCase, read_bundle
from pte_arenas.dtypes import name_of
from pte_arenas.rules.tensors import listed
from pte_arenas.runtime import Session, load_program


class CaseResult(BaseModel):
    """What became of one test case.

    Attributes:
        suite: Index of the suite in the file.
        case: Index of the case in the suite.
        method: Name of the method.
        largest_difference: Over all elements of all outputs; none where nothing can be compared.
        failure: What is wrong; none if the case passed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: int
    case: int
    method: str
    largest_difference: float | None = None
    failure: str | None = None


class VerificationReport(BaseModel):
    """What became of all test cases, in the order in which they ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_state: bool
    rtol: float
    atol: float
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """Whether there are cases and all of them passed."""
        return bool(self.cases) and not any(case.failure for case in self.cases)


def verify(
    source: str | os.PathLike[str] | bytes,
    *,
    keep_state: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    data_path: str | os.PathLike[str] | None = None,
    shared_memory_ids: Sequence[int] | None = None,
) -> VerificationReport:
    """Runs a bundled program (`.bpte`) against the outputs that it expects.

    The suites run in the order of the file, their cases one after the other: a case sees the state
    that those before it left.

    Args:
        source: Path of the file, or its bytes.
        keep_state: Whether a suite goes on with the state that the one before it left, instead of
            starting from initial values.
        rtol: Elements of a floating dtype may differ by this, relative to the expected one, ...
        atol: ... plus this. The defaults are ExecuTorch's. Others must be equal.
        data_path: As for `load_program`.
        shared_memory_ids: As for `load_program`.

    Raises:
        ArenaError: As for `load_program`.
        InvalidProgramError: It is no bundled program, or its program breaks a rule of
            docs/checks.md.
        OSError: A file cannot be read.
    """
    bundle = read_bundle(source)
    program = load_program(bundle.program, data_path=data_path, shared_memory_ids=shared_memory_ids)
    session = program.session()
    cases = []
    for index, suite in enumerate(bundle.suites):
        if index and not keep_state:
            session = program.session()
        for number, case in enumerate(suite.cases):
            difference, failure = _run(session, suite.method, case, rtol, atol)
            cases.append(
                CaseResult(
                    suite=index,
                    case=number,
                    method=suite.method,
                    largest_difference=difference,
                    failure=failure,
                )
            )
    return VerificationReport(keep_state=keep_state, rtol=rtol, atol=atol, cases=tuple(cases))


def _run(
    session: Session, method: str, case: TestCase, rtol: float, atol: float
) -> tuple[float | None, str | None]:
    try:
        outputs = session.execute(method, case.inputs)
    except (RuntimeError, TypeError, ValueError) as error:  # the file's fault, and a result
        return None, str(error)
    if len(outputs) != len(case.expected):
        return None, f"expected {len(case.expected)} outputs but found {len(outputs)}"
    compared = [
        _compare(f"output {index}", torch.as_tensor(have), torch.as_tensor(want), rtol, atol)
        for index, (have, want) in enumerate(zip(outputs, case.expected, strict=True))
    ]
    differences = [difference for difference, _ in compared if difference is not None]
    failures = [failure for _, failure in compared if failure is not None]
    return max(differences, default=None), "; ".join(failures) or None


def _compare(
    name: str, have: torch.Tensor, want: torch.Tensor, rtol: float, atol: float
) -> tuple[float | None, str | None]:
    if (have.dtype, have.shape) != (want.dtype, want.shape):
        return None, f"{name}: expected {_kind(want)} but found {_kind(have)}"
    if not have.numel():
        return None, None
    if want.dtype.is_floating_point:
        close = torch.isclose(have.double(), want.double(), rtol, atol, equal_nan=True)
    else:
        close = have == want
    gap = (have.double() - want.double()).abs()
    # Infinities of one sign and NaN beside NaN do not differ; NaN beside a number does.
    gap = gap.masked_fill(close & ~gap.isfinite(), 0.0)
    difference = float(gap.masked_fill(gap.isnan(), torch.inf).max())
    wrong = int((~close).sum())
    if not wrong:
        return difference, None
    first = tuple(int(i) for i in torch.nonzero(~close)[0])
    return difference, (
        f"{name}: expected {want[first].item()} at {listed(first)} but found {have[first].item()}; "
        f"{wrong} of {want.numel()} elements differ"
    )


def _kind(tensor: torch.Tensor) -> str:
    return f"{name_of(tensor.dtype)} of sizes {listed(tensor.shape)}"
