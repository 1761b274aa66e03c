"""The detector as an ExecuTorch program with one arena for its state."""

from __future__ import annotations

import torch
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower

import pte_arenas as pa
from examples.silero_vad.model import CHUNK_SAMPLES, SileroVad


def export_vad(vad: SileroVad, *, xnnpack: bool = False) -> ExecutorchProgramManager:
    """Exports `detect` and `reset` over one arena that holds both buffers.

    Args:
        vad: The network; it stays as it is.
        xnnpack: Lower what XNNPACK can take to it, instead of portable kernels for everything.
    """
    partitioners = []
    if xnnpack:
        # Imported late: it brings torchao, which is slow to import and complains to the log.
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # noqa: PLC0415
            XnnpackPartitioner,
        )

        partitioners.append(XnnpackPartitioner())
    chunk = torch.zeros(1, CHUNK_SAMPLES)
    exported = pa.export(
        {"detect": pa.EntryPoint(vad.detect, (chunk,)), "reset": pa.EntryPoint(vad.reset)},
        arenas=[pa.Arena("state", buffers=["state", "context"])],
    )
    edge = to_edge_transform_and_lower(exported.programs, partitioner=partitioners)
    return pa.to_executorch(edge, arenas=exported.arenas)
