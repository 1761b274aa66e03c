"""The same network as people run it on stock ExecuTorch 1.5.1, to compare with.

Its ways: memory that the methods share because whoever loads them says so, with and without stock's
updates in place, and a cache that is an input and an output of every call, which is what is left
where each method has memory of its own (C++ `Module` by default). A token reads all heads of the
cache at once: stock would copy each head as a whole before it takes the filled part.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass

from examples.smollm2.model import Attention
from examples.smollm2.program import entry_points, metadata
from examples.stock import pass_state, share_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.export import ExportedProgram

    import pte_arenas as pa
    from examples.smollm2.model import SmolLM2


def export_sharing(model: SmolLM2, *, run_reinplace_pass: bool = False) -> ExecutorchProgramManager:
    """Exports for a caller that loads all methods into one planned memory for the cache.

    Args:
        model: The network.
        run_reinplace_pass: Whether stock updates the cache in place, as it does by default nowhere:
            its pass overwrites values that are still read (F23 of docs/faults.md). This network
            reads none.
    """
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        emit_mutable_buffer_names=True,
        run_reinplace_pass=run_reinplace_pass,
    )
    model = _reading_all_heads(model)
    return _emit(model, share_state(model, _methods(model)), config)


def export_passing(model: SmolLM2) -> ExecutorchProgramManager:
    """Exports methods whose inputs are tokens, positions and the cache, which is output as well.

    Raises:
        ValueError: They return the cache in another order than they take it.
    """
    model = _reading_all_heads(model)
    state = state_of(model)
    exported = pass_state(model, _methods(model), state)
    for name, changed in exported.changed.items():
        if changed != tuple(state):
            raise ValueError(f"{name}: expected to return {list(state)} but found {changed}")
    # Inputs are planned, and so copied: of those that a method changes, stock 1.5.1 reads only the
    # first call's where they are not.
    return _emit(model, exported.programs, ExecutorchBackendConfig())


def state_of(model: SmolLM2) -> dict[str, Tensor]:
    """Buffers that the methods change, by name."""
    changed = ("keys", "values", "tokens", "filled")
    buffers = model.named_buffers()
    return {name: buffer for name, buffer in buffers if name.rpartition(".")[2] in changed}


def _reading_all_heads(model: SmolLM2) -> SmolLM2:
    """The same network, with the same weights, in the form that is quicker here."""
    copied = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    for module in copied.modules():
        if isinstance(module, Attention):
            module.by_head = False
    return copied


def _methods(model: SmolLM2) -> dict[str, pa.EntryPoint]:
    """All but `reset`: stock does not export methods without arguments."""
    entries = entry_points(model)
    return {name: entries[name] for name in ("prefill", "decode")}


def _emit(
    model: SmolLM2, programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig
) -> ExecutorchProgramManager:
    edge = to_edge_transform_and_lower(
        dict(programs), partitioner=[XnnpackPartitioner()], constant_methods=metadata(model)
    )
    return edge.to_executorch(config)
