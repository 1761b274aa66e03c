"""The model as an ExecuTorch program: three methods over one KV cache."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.export import Dim
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.utils import unwrap_tensor_subclass

import pte_arenas as pa
from examples.smollm2.model import MAX_PREFILL, SmolLM2

if TYPE_CHECKING:
    from collections.abc import Callable

STAGES = ("exporting", "lowering to XNNPACK", "planning and emitting")
ARENAS = (
    pa.Arena("kv_cache", buffers=["*.keys", "*.values", "tokens", "filled"]),
    pa.Arena("activations", lifetime="scratch"),
)


def entry_points(model: SmolLM2) -> dict[str, pa.EntryPoint]:
    """The methods with example arguments.

    A position of the context stays free: attention over the whole cache, not a part of it, would be
    another case for `torch.export`.
    """
    context = model.config.context
    longest = _longest_prefill(model)
    length, filled = Dim("length", min=2, max=longest), Dim("filled", min=2, max=context - 1)
    prompt, positions = torch.arange(longest // 2), torch.arange(longest // 2 + 1)
    return {
        "prefill": pa.EntryPoint(
            model.prefill, (prompt, positions), dynamic_shapes=({0: length}, {0: filled})
        ),
        "decode": pa.EntryPoint(
            model.decode, (torch.tensor([1]), positions.clone()), dynamic_shapes=(None, {0: filled})
        ),
        "reset": pa.EntryPoint(model.reset),
    }


def metadata(model: SmolLM2) -> dict[str, int]:
    """Constant methods of the program, with the names that ExecuTorch's LLM runners ask for."""
    return {
        "get_max_context_len": model.config.context,
        "get_max_seq_len": _longest_prefill(model),
        "get_vocab_size": model.config.vocabulary,
    }


def _longest_prefill(model: SmolLM2) -> int:
    return min(MAX_PREFILL, model.config.context - 1)


def export_smollm2(
    model: SmolLM2, *, quantize: bool = False, begin: Callable[[str], object] = str
) -> pa.ArenaProgramManager:
    """Exports the model for XNNPACK, with one arena for the cache and one for activations.

    Args:
        model: The network; it stays as it is.
        quantize: 8-bit dynamic activations and 4-bit weights, as `quantized` has them.
        begin: Called with each of `STAGES` when it begins.
    """
    begin(STAGES[0])
    exported = pa.export(entry_points(quantized(model) if quantize else model), ARENAS)
    begin(STAGES[1])
    edge = to_edge_transform_and_lower(
        exported.programs,
        partitioner=[XnnpackPartitioner()],
        constant_methods=metadata(model),
    )
    begin(STAGES[2])
    return pa.to_executorch(edge, exported.arenas)


def quantized(model: SmolLM2) -> SmolLM2:
    """A copy of the model whose linear layers take 8-bit activations and 4-bit weights.

    Weights have a scale for every 32 of a row, as in the GGUF file. Those of the last layer have 8
    bits and a scale for each row; the embedding stays as it is.
    """
    copied = copy.deepcopy(model)
    int4: torch.dtype = torch.int4  # type: ignore[attr-defined]  # not in torch's stubs
    for weights, granularity, part in (
        (int4, PerGroup(32), copied.layers),
        (torch.int8, PerAxis(0), copied.head),
    ):
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=weights, weight_granularity=granularity
        )
        quantize_(part, config)
    quantized: SmolLM2 = unwrap_tensor_subclass(copied)
    return quantized
