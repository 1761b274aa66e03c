"""ExecuTorch's own Llama with random weights, small: two methods over one cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.examples.models.llama.attention import KVCache
from executorch.examples.models.llama.llama_transformer import Transformer, construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

import pte_arenas as pa

VOCABULARY = 64
CONTEXT = 128
KV_CACHE = pa.Arena("kv_cache", ["*.k_cache", "*.v_cache"])


def make_llama() -> Transformer:
    """Makes the module, always with the same weights."""
    torch.manual_seed(0)
    module = construct_transformer(
        ModelArgs(
            dim=64,
            n_layers=2,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=128,
            vocab_size=VOCABULARY,
            max_seq_len=CONTEXT,
            max_context_len=CONTEXT,
            use_kv_cache=True,
            enable_dynamic_shape=True,
        )
    )
    return module.eval().requires_grad_(False)


def make_inputs(length: int, position: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Makes arguments of the module: tokens, and where in the context the first of them is."""
    generator = torch.Generator().manual_seed(1000 * length + position)
    tokens = torch.randint(0, VOCABULARY, (1, length), generator=generator)
    return tokens, {"input_pos": torch.tensor([position])}


def methods(*more: Any) -> dict[str, tuple[tuple[Any, ...], Any]]:
    """Example arguments and dynamic shapes of both methods.

    Args:
        more: Further arguments, of static shapes.
    """
    length = Dim("length", min=2, max=CONTEXT - 1)
    still = pytree.tree_map(lambda _: {}, more)
    return {
        "prefill": ((*make_inputs(8, 0), *more), ({1: length}, {"input_pos": {}}, *still)),
        "decode": ((*make_inputs(1, 8), *more), None),
    }


def export_with_arena() -> pa.Exported:
    """Exports both methods over one arena."""
    module = make_llama()
    return pa.export(
        {
            name: pa.EntryPoint(module, args, dynamic_shapes=shapes)
            for name, (args, shapes) in methods().items()
        },
        [KV_CACHE],
    )


def export_stock(module: nn.Module, *more: Any) -> dict[str, ExportedProgram]:
    """Exports both methods as people do without arenas."""
    return {
        name: torch.export.export(module, args, dynamic_shapes=shapes, strict=False)
        for name, (args, shapes) in methods(*more).items()
    }


def lower(programs: Mapping[str, ExportedProgram], *, xnnpack: bool = True) -> EdgeProgramManager:
    """Lowers with XNNPACK, or for the portable kernels alone."""
    partitioner = [XnnpackPartitioner()] if xnnpack else None
    return to_edge_transform_and_lower(dict(programs), partitioner=partitioner)


class _UntouchedCache(KVCache):
    """A cache that uses up what it is given without writing it."""

    used_up: ClassVar[list[Tensor]] = []

    def update(self, input_pos: Tensor, k_val: Tensor, v_val: Tensor) -> tuple[Tensor, Tensor]:
        indices = torch.arange(k_val.size(2)) + input_pos[0]
        self.used_up.append(indices.sum() + k_val.sum() + v_val.sum())
        return self.k_cache, self.v_cache


class UntouchedLlama(nn.Module):
    """The same module with the caches as inputs that nobody writes: what all the rest plans.

    Keys, values and positions are computed as ever. A sum of four bytes takes the place of writing
    them; without it they would be left out as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.llama = make_llama()
        for layer in self.llama.layers:
            layer.attention.kv_cache.__class__ = _UntouchedCache

    def caches(self) -> dict[str, Tensor]:
        """The caches by their name in `llama`."""
        buffers = self.llama.named_buffers()
        return {name: buffer for name, buffer in buffers if name.endswith(("k_cache", "v_cache"))}

    def forward(
        self, tokens: Tensor, options: dict[str, Tensor], caches: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        _UntouchedCache.used_up.clear()
        logits = torch.func.functional_call(self.llama, caches, (tokens, options))
        return logits, torch.stack(_UntouchedCache.used_up).sum()
