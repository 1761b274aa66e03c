"""Exports for stock ExecuTorch, which has no arenas: what the examples compare themselves with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from torch.export import ExportedProgram

    import pte_arenas as pa


class Passing(NamedTuple):
    """Methods whose state is further inputs, and outputs in front of the others.

    Attributes:
        programs: By the name of the method; the inputs are its own, then the state.
        changed: By the name of the method, the names of the state that it returns, in order.
    """

    programs: dict[str, ExportedProgram]
    changed: dict[str, tuple[str, ...]]


def share_state(
    module: nn.Module, entry_points: Mapping[str, pa.EntryPoint]
) -> dict[str, ExportedProgram]:
    """Exports methods of a module, each as people do without arenas."""
    programs = {}
    for name, entry in entry_points.items():
        shapes = None if entry.dynamic_shapes is None else (tuple(entry.dynamic_shapes),)
        programs[name] = torch.export.export(
            _AsForward(module, name), entry.args, dynamic_shapes=shapes, strict=False
        )
    return programs


def pass_state(
    module: nn.Module, entry_points: Mapping[str, pa.EntryPoint], state: Mapping[str, Tensor]
) -> Passing:
    """Exports methods of a module with some of its buffers as inputs and outputs.

    Args:
        module: The module; it stays as it is.
        entry_points: Methods with example arguments and dynamic shapes.
        state: The buffers by name.
    """
    programs: dict[str, ExportedProgram] = {}
    changed: dict[str, tuple[str, ...]] = {}
    for name, entry in entry_points.items():
        shapes = None
        if entry.dynamic_shapes is not None:
            shapes = (tuple(entry.dynamic_shapes), (None,) * len(state))
        program = torch.export.export(
            _WithState(module, name, tuple(state)),
            (entry.args, tuple(value.clone() for value in state.values())),
            dynamic_shapes=shapes,
            strict=False,
        )
        # Stock gives an input that a method changes back as an output.
        signature = program.run_decompositions({}).graph_signature
        inputs = signature.user_inputs[len(entry.args) :]
        of_input = dict(zip(inputs, state, strict=True))
        programs[name] = program
        changed[name] = tuple(of_input[one] for one in signature.user_inputs_to_mutate.values())
    return Passing(programs, changed)


class _AsForward(nn.Module):
    """A method as `forward`, with inputs of other names than its own.

    Stock writes to an input in place of a buffer of the same name (F24 of docs/faults.md).
    """

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self._method = method

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.module, self._method)(*inputs)


class _WithState(nn.Module):
    def __init__(self, module: nn.Module, method: str, names: tuple[str, ...]) -> None:
        super().__init__()
        self.method = _AsForward(module, method)
        self._names = [f"module.{name}" for name in names]

    def forward(self, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> Any:
        given = dict(zip(self._names, state, strict=True))
        return torch.func.functional_call(self.method, given, inputs)
