"""Every private name of ExecuTorch that this package touches, with the reason.

Checked against ExecuTorch 1.5.1.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Collection
from typing import Any

from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.passes.propagate_device_pass import _get_target_device_from_compile_specs
from executorch.exir.passes.replace_view_copy_with_view_pass import _ViewSpec
from executorch.exir.program import _program
from executorch.exir.tensor import TensorSpec
from executorch.extension.flat_tensor.serialize.serialize import (
    FlatTensorConfig,
    FlatTensorSerializer,
)
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind


def edge_programs(edge: EdgeProgramManager) -> dict[str, ExportedProgram]:
    """The programs of an edge manager in the order in which it lowers them.

    `EdgeProgramManager.methods` is a set, so it does not tell the order.
    """
    programs: dict[str, ExportedProgram] = edge._edge_programs
    return programs


def with_programs(
    edge: EdgeProgramManager, programs: dict[str, ExportedProgram]
) -> EdgeProgramManager:
    """An edge manager like another one with other programs, not verified again.

    The constructor collects named data from the programs but takes no ETRecord and runs the edge
    verifier, which has already accepted these graphs.
    """
    copied = object.__new__(EdgeProgramManager)
    copied.__dict__.update(vars(edge))
    copied._edge_programs = programs
    return copied


def to_executorch(
    edge: EdgeProgramManager,
    config: ExecutorchBackendConfig,
    make_manager: Callable[..., ExecutorchProgramManager],
) -> ExecutorchProgramManager:
    """Runs stock `to_executorch`, which then calls `make_manager` for its result.

    Stock names the class of its result in its body. This runs the same code with that one name
    bound to ours, and so leaves the module of the stock function as it is.

    Raises:
        RuntimeError: The stock function is built in another way than in the checked version.
    """
    function: Any = _program.EdgeProgramManager.to_executorch
    while "ExecutorchProgramManager" not in function.__code__.co_names:
        wrapped = [
            cell.cell_contents
            for cell in function.__closure__ or ()
            if isinstance(cell.cell_contents, types.FunctionType)
        ]
        if len(wrapped) != 1:
            raise RuntimeError(
                "expected EdgeProgramManager.to_executorch to construct an "
                "ExecutorchProgramManager, as in ExecuTorch 1.5.1; this version of pte-arenas does "
                "not work with the installed ExecuTorch"
            )
        (function,) = wrapped
    bound = types.FunctionType(
        function.__code__,
        {**function.__globals__, "ExecutorchProgramManager": make_manager},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    manager: ExecutorchProgramManager = bound(edge, config)
    return manager


def fold_constants(program: ExportedProgram, live: Collection[str]) -> ExportedProgram:
    """Runs stock quant fusion and constant folding, with the named buffers as unknown inputs.

    The stock pass takes a buffer that this method does not write for a constant.
    """
    inputs = [
        spec
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.BUFFER and spec.target in live
    ]
    for spec in inputs:
        spec.kind = InputKind.USER_INPUT
    folded = _program.quant_fusion_and_const_prop_pass(program)
    names = {spec.arg.name for spec in inputs}
    for spec in [*inputs, *folded.graph_signature.input_specs]:
        if spec.arg.name in names:
            spec.kind = InputKind.BUFFER
    result: ExportedProgram = folded
    return result


def drop_mutated_inputs(program: ExportedProgram) -> None:
    """Keeps emission from returning the new values of inputs that the method writes, in place.

    Stock leaves out those of buffers only; the write itself is in the graph for both.
    """
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            spec.kind = OutputKind.BUFFER_MUTATION


def uses_dim_order(edge: EdgeProgramManager) -> bool:
    """Whether copies are written in the dim-order dialect, as the edge programs were."""
    return not edge.compile_config._skip_dim_order


def chunks(cord: Any) -> list[Any]:
    """The pieces of a `Cord`, which has no public way to them."""
    pieces: list[Any] = cord._buffers
    return pieces


def emit(
    programs: dict[str, ExportedProgram],
    config_methods: dict[str, Any] | None,
    config: ExecutorchBackendConfig,
) -> Any:
    """Stock emission: an `EmitterOutput`, whose program is still Python dataclasses."""
    return _program.emit_program(
        programs, config.emit_stacktrace, config_methods, config.emit_mutable_buffer_names
    )


def serialize(
    output: Any, config: ExecutorchBackendConfig, named_data: Any
) -> tuple[Any, Any, Any]:
    """Stock serialisation: the data serializer, the program as a `Cord`, the `.ptd` files."""
    serializer = FlatTensorSerializer(FlatTensorConfig(segment_alignment=config.segment_alignment))
    program, data = _program.serialize_for_executorch(output, config, serializer, named_data)
    return serializer, program, data


def fresh_planning_pass(planning_pass: Any) -> Any:
    """A copy of the user's planning pass without what earlier programs left in it.

    A pass keeps the graphs of every program it has planned, and stock sets attributes on it.
    Sharing of mutable buffers by position gives way to arenas.
    """
    fresh = copy.copy(planning_pass)
    state = getattr(planning_pass, "state", None)
    if state is not None and hasattr(state, "graph_modules"):
        fresh.state = type(state)()
    if getattr(fresh, "share_mutable_buffers", False):
        fresh.share_mutable_buffers = False
    return fresh


def storage_spec(spec: TensorSpec) -> TensorSpec:
    """The spec of the tensor that a spec is a view of, at last; views have its memory fields."""
    while isinstance(spec, _ViewSpec):
        spec = spec._base
    return spec


def target_device(lowered: Any) -> tuple[str, int]:
    """Type and index of the device that a partitioner gave to a delegate; the CPU if none."""
    found = _get_target_device_from_compile_specs(lowered)
    return ("cpu", 0) if found is None else (found[0].name.lower(), found[1])
