"""Separates what a method computes on the way from what it must keep for itself.

Only activations may share memory with other methods. The inputs of a method are set before other
methods run, its outputs are read after they did, and its own mutable buffers live on: all of these
need memory of its own. A planner puts them into one buffer with the activations and lets bytes
serve an input first and an activation later.

Asking the user's planner for two buffers instead does not work with every planner: memory ids that
are given in advance are refused beside devices and overwritten by custom pools, and inputs that are
hidden from it fail its verification. So the planner plans as ever. After that the activations, in
the places that it gave them, move to another memory id, and `squeeze.py` closes the holes in both.
This depends on nothing but one fact of the result: tensors that must not overlap do not.

A planner may also overlap tensors that are alive together on purpose, such as a part of a
concatenation inside the whole. What shares bytes with a tensor that stays, while both are alive,
stays as well.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from executorch.exir import memory
from executorch.exir.operator.convert import output_to_aliased_input_map
from executorch.exir.tensor import TensorSpec
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from pte_arenas._exir import storage_spec
from pte_arenas.delegates import padding_behind
from pte_arenas.squeeze import squeeze

_COND = torch.ops.higher_order.cond


@dataclass
class Separated:
    """The two parts of one planned buffer of a method.

    Attributes:
        own: Bytes that the method keeps to itself.
        scratch: Bytes of its activations; 0 where there are none.
        activations: Their specs. Their offsets are already those in the scratch memory.
    """

    own: int
    scratch: int
    activations: list[TensorSpec]


def separate(module: GraphModule, memory_id: int, size: int) -> Separated:
    """Moves the activations of a planned method apart, and both parts together, in place.

    Args:
        module: The planned method.
        memory_id: The planned buffer to divide. The memory id of the specs is left to the caller.
        size: What the planner gave it, in bytes.
    """
    planned = _Planned.of(module, memory_id)
    own = planned.kept(storage_spec(spec) for spec in _results_and_inputs(module))
    activations = [spec for spec in planned.specs if id(spec) not in own]
    rest = [spec for spec in planned.specs if id(spec) in own]
    end = max((end for _, end in planned.spans.values()), default=0)
    padding = max(size - end, padding_behind(module))
    return Separated(
        planned.close_up(rest, padding), planned.close_up(activations, padding), activations
    )


@dataclass
class _Planned:
    """The tensors of one memory id; views count as the tensor that they are views of."""

    specs: list[TensorSpec] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    graphs: dict[int, set[int]] = field(default_factory=dict)

    @staticmethod
    def of(module: GraphModule, memory_id: int) -> _Planned:
        planned = _Planned()
        for graph_module in module.modules():
            if not isinstance(graph_module, GraphModule):
                continue
            for node in graph_module.graph.nodes:
                for spec in map(storage_spec, _specs(node)):
                    if spec.const or spec.mem_id != memory_id or spec.mem_offset is None:
                        continue
                    if id(spec) not in planned.graphs:
                        planned.specs.append(spec)
                        begin = spec.mem_offset
                        planned.spans[id(spec)] = (begin, begin + spec.allocated_memory)
                    planned.graphs.setdefault(id(spec), set()).add(id(graph_module))
        return planned

    def kept(self, first: Iterable[TensorSpec]) -> set[int]:
        """The ids of those tensors that are among the first or share bytes with one that stays."""
        kept: set[int] = set()
        found = [spec for spec in first if id(spec) in self.graphs]
        while found:
            spec = found.pop()
            if id(spec) in kept:
                continue
            kept.add(id(spec))
            found += [
                other
                for other in self.specs
                if id(other) not in kept and self._share_bytes(spec, other)
            ]
        return kept

    def _share_bytes(self, one: TensorSpec, other: TensorSpec) -> bool:
        (begin, end), (other_begin, other_end) = self.spans[id(one)], self.spans[id(other)]
        if begin >= other_end or other_begin >= end:
            return False
        # Values pass between a graph and its branches as tensors, never by place.
        return bool(self.graphs[id(one)] & self.graphs[id(other)]) and _alive_together(one, other)

    def close_up(self, specs: list[TensorSpec], padding: int) -> int:
        """Closes the holes between tensors; returns the bytes that they take with the padding."""
        if not specs:
            return 0
        alignment = max(max(spec.alignment, spec.dtype.itemsize) for spec in specs)
        squeezed = squeeze((self.spans[id(spec)] for spec in specs), alignment)
        for spec in specs:
            spec.mem_offset = squeezed[spec.mem_offset]
        return squeezed.end + padding


def _results_and_inputs(module: GraphModule) -> Iterator[TensorSpec]:
    for node in module.graph.nodes:
        if node.op == "placeholder":
            yield from _specs(node)
    for node in module.graph.output_node().all_input_nodes:
        for source in _sources(node):
            yield from _specs(source)


def _sources(node: Any) -> Iterator[Node]:
    """Yields a node and every other one whose tensor it may be when the method ends.

    The result of a branch is not copied to the result of the condition: it becomes that.
    """
    yield node
    if node.op != "call_function":
        return
    if node.target is memory.view:
        yield from _sources(node.args[0])
    elif node.target is operator.getitem and node.args[0].target is _COND:
        yield from _branch_results(*node.args)
    elif (argument := _written_argument(node)) is not None:
        yield from _sources(argument)


def _written_argument(node: Node) -> Node | None:
    """The argument that an operator writes and returns."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = node.target._schema
    index = output_to_aliased_input_map(schema).get(0)
    if index is None:
        return None
    by_name = node.kwargs.get(schema.arguments[index].name)
    argument = node.args[index] if index < len(node.args) else by_name
    return argument if isinstance(argument, Node) else None


def _branch_results(cond: Node, index: int) -> Iterator[Node]:
    true_branch, false_branch, operands = cast(Any, cond.args[1:])
    for branch in (true_branch, false_branch):
        body = getattr(cond.graph.owning_module, branch.target)
        inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
        for source in _sources(body.graph.output_node().args[0][index]):
            if source in inputs:
                yield from _sources(operands[inputs.index(source)])
            else:
                yield source


def _specs(node: Node) -> list[TensorSpec]:
    leaves = pytree.tree_leaves(node.meta.get("spec"))
    return [leaf for leaf in leaves if isinstance(leaf, TensorSpec)]


def _alive_together(one: TensorSpec, other: TensorSpec) -> bool:
    """Whether two tensors of one graph may be alive at once, as far as the planner tells."""
    lifetimes = [*one.lifetime, *other.lifetime]
    if None in lifetimes:
        return True
    begin, end, other_begin, other_end = lifetimes
    return bool(begin <= other_end and other_begin <= end)
