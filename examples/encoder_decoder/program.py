"""The network as an ExecuTorch program with arenas, and with its state passed from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower

import pte_arenas as pa
from examples.stock import pass_state

if TYPE_CHECKING:
    from examples.encoder_decoder.model import Translator

ARENAS = (
    pa.Arena("cross", buffers=["*.cross.*"]),
    pa.Arena("past", buffers=["*.past.*"]),
    pa.Arena("activations", lifetime="scratch"),
)


def entry_points(model: Translator) -> dict[str, pa.EntryPoint]:
    """The methods with example arguments."""
    source, one = torch.zeros(model.config.source, dtype=torch.int64), torch.tensor([1])
    return {
        "reset_encode_prefill": pa.EntryPoint(model.reset_encode_prefill, (source, one)),
        "decode": pa.EntryPoint(model.decode, (one, one.clone(), one.clone())),
    }


def export_translator(model: Translator, *, xnnpack: bool = True) -> pa.ArenaProgramManager:
    """Exports both methods over arenas.

    Args:
        model: The network; it stays as it is.
        xnnpack: Lower what XNNPACK can take to it, instead of portable kernels for everything.
    """
    exported = pa.export(entry_points(model), ARENAS)
    edge = to_edge_transform_and_lower(exported.programs, partitioner=_partitioner(xnnpack))
    return pa.to_executorch(edge, exported.arenas)


def export_passing(
    model: Translator, *, xnnpack: bool = True
) -> tuple[ExecutorchProgramManager, dict[str, tuple[str, ...]]]:
    """Exports both methods for stock, with the state as further inputs.

    Returns:
        The program; and by method the names of the state that it returns before the logits.
    """
    exported = pass_state(model, entry_points(model), dict(model.named_buffers()))
    edge = to_edge_transform_and_lower(exported.programs, partitioner=_partitioner(xnnpack))
    return edge.to_executorch(), exported.changed


def _partitioner(xnnpack: bool) -> list[XnnpackPartitioner]:
    return [XnnpackPartitioner()] if xnnpack else []
