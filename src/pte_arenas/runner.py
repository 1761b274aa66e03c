"""Runs methods of a program file, one after the other over one state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from pte_arenas.errors import ArenaError
from pte_arenas.names import nearest
from pte_arenas.rules.tensors import quoted
from pte_arenas.runtime import Program, load_program


@dataclass(frozen=True)
class Call:
    """One execution.

    Attributes:
        method: Name of the method.
        outputs: What it returned.
    """

    method: str
    outputs: tuple[object, ...]


def run_methods(
    file: Path,
    methods: Sequence[str],
    *,
    fill: float = 1.0,
    inputs: Path | None = None,
    load_state: Path | None = None,
    save_state: Path | None = None,
    allow_other_program: bool = False,
    data_path: Path | None = None,
    shared_memory_ids: Sequence[int] | None = None,
) -> Iterator[Call]:
    """Runs methods in the given order in one session.

    Args:
        file: A `.pte` file.
        methods: Names; one that is there twice runs twice.
        fill: What fills each input that `inputs` does not have, in its largest sizes.
        inputs: A `.npz` file with arrays named `METHOD.INDEX`, such as `detect.0`.
        load_state: A state file to begin with.
        save_state: Where to save the state at the end.
        allow_other_program: Whether the state file may be another program's, if its slots fit.
        data_path: A `.ptd` file that the program needs.
        shared_memory_ids: Of a stock file; see `load_program`.

    Raises:
        ArenaError: There is no such method or input, an input is not what its method takes or no
            tensor, or ExecuTorch cannot load or run a method.
        InvalidProgramError: The program breaks a rule of docs/checks.md.
        OSError: A file cannot be read or written.
        StateFileError: The state file does not fit the program.
    """
    program = load_program(file, data_path=data_path, shared_memory_ids=shared_memory_ids)
    given = _read_inputs(program, inputs) if inputs else {}
    arguments = {name: _arguments(program, name, given, fill) for name in dict.fromkeys(methods)}
    session = program.session()
    if load_state:
        session.load(load_state, allow_other_program=allow_other_program)
    for name in methods:
        try:
            outputs = session.execute(name, arguments[name])
        except (RuntimeError, TypeError, ValueError) as error:
            raise ArenaError(str(error)) from error
        yield Call(name, tuple(outputs))
    if save_state:
        session.save(save_state)


def _read_inputs(program: Program, path: Path) -> Mapping[str, torch.Tensor]:
    known = {
        f"{name}.{index}"
        for name in program.method_names
        for index in range(program.metadata(name).num_inputs())
    }
    try:
        with np.load(path, allow_pickle=False) as arrays:
            given = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (AttributeError, TypeError, ValueError, BadZipFile):
        raise ArenaError(
            f"inputs: expected an .npz file of numbers but found {quoted(str(path))}"
        ) from None
    for name in given:
        if name not in known:
            raise ArenaError(
                f"inputs: expected names METHOD.INDEX but found {quoted(name)}; "
                f"{nearest(name, known)}"
            )
    return given


def _arguments(
    program: Program, method: str, given: Mapping[str, torch.Tensor], fill: float
) -> tuple[torch.Tensor, ...]:
    return tuple(
        given[name]
        if (name := f"{method}.{index}") in given
        else _filled(program, method, index, fill)
        for index in range(program.metadata(method).num_inputs())
    )


def _filled(program: Program, method: str, index: int, fill: float) -> torch.Tensor:
    try:
        info = program.metadata(method).input_tensor_meta(index)
    except TypeError:
        raise ArenaError(
            f"{method}: expected a tensor as input {index} but found another type, which "
            "session.execute takes in Python"
        ) from None
    return torch.full(tuple(info.sizes()), fill).to(getattr(torch, info.dtype_name()))
