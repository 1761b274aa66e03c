"""What memory planning has to know about the delegates of a lowered graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.fx import GraphModule, Node

from pte_arenas._exir import target_device
from pte_arenas.plan import XNNPACK_PADDING


def called_delegate(node: Any) -> LoweredBackendModule | None:
    """The delegate that a node calls, if it calls one."""
    if not isinstance(node, Node) or node.target is not executorch_call_delegate:
        return None
    attribute: Any = node.args[0]
    lowered = getattr(node.graph.owning_module, attribute.target)
    return lowered if isinstance(lowered, LoweredBackendModule) else None


def device_of_delegate(node: Any) -> tuple[str, int] | None:
    """Type and index of the device that a node's delegate runs on; None if it calls none."""
    lowered = called_delegate(node)
    return None if lowered is None else target_device(lowered)


def padding_behind(module: GraphModule) -> int:
    """Bytes that a method may read behind the last tensor of a buffer."""
    names = (lowered.backend_id.lower() for lowered in _delegates(module))
    return XNNPACK_PADDING if any("xnnpack" in name for name in names) else 0


def _delegates(module: GraphModule) -> Iterator[LoweredBackendModule]:
    for graph_module in module.modules():
        if isinstance(graph_module, GraphModule):
            lowered = map(called_delegate, graph_module.graph.nodes)
            yield from (delegate for delegate in lowered if delegate is not None)
